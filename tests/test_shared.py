"""What the processes of a session share, and what they are kept from."""

from __future__ import annotations

import os

import pytest

from pytest_tensorizer.storage import moto_service

TESTS = """
    import pytest

    @pytest.mark.parametrize("n", range(4))
    def test_model(tensorizer_models, n):
        directory = tensorizer_models("gpt2").directory
        print("MODEL", directory, directory.stat().st_ino)

    @pytest.mark.fresh_process
    def test_model_in_a_clean_process(tensorizer_models):
        directory = tensorizer_models("gpt2").directory
        print("MODEL", directory, directory.stat().st_ino)

    def test_s3(tensorizer_bucket):
        print("SERVER", tensorizer_bucket.service.endpoint_url)

    @pytest.mark.fresh_process
    def test_s3_in_a_clean_process(tensorizer_bucket):
        print("SERVER", tensorizer_bucket.service.endpoint_url)
"""


def _lines(output: str, word: str) -> set[str]:
    return {line for line in output.splitlines() if line.startswith(f"{word} ")}


@pytest.mark.parametrize("workers", ["0", "2"])
def test_one_copy_of_a_model_and_one_server(pytester: pytest.Pytester, workers: str) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-rP", "-n", workers, "--basetemp", str(pytester.path / "base"))
    result.assert_outcomes(passed=7)
    models = _lines(result.stdout.str(), "MODEL")
    assert len(models) == 1, models
    # One server for a pytest process, which the clean ones that it starts use as well.
    servers = _lines(result.stdout.str(), "SERVER")
    assert len(servers) <= (2 if workers == "2" else 1), servers


def test_another_s3_service_takes_the_place_of_moto(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    with moto_service() as service:
        monkeypatch.setenv("MY_ID", service.access_key)
        monkeypatch.setenv("MY_SECRET", service.secret_key)
        result = pytester.runpytest_subprocess(
            "--tensorizer-conformance", f"--tensorizer-s3-endpoint={service.endpoint_url}",
            "--tensorizer-s3-credentials=MY_ID:MY_SECRET", "tensorizer-conformance/test_storage.py::test_read",
        )  # fmt: skip
        result.assert_outcomes(passed=4)
        assert not service.client().list_buckets()["Buckets"], "a bucket was left behind"


@pytest.mark.parametrize(
    ("credentials", "words"),
    [("", "needs --tensorizer-s3-credentials=ID_VAR:SECRET_VAR"), ("NO_SUCH_A:NO_SUCH_B", "'NO_SUCH_A' is not set")],
)
def test_a_service_without_credentials_is_a_usage_error(
    pytester: pytest.Pytester, credentials: str, words: str
) -> None:
    result = pytester.runpytest_subprocess(
        "--tensorizer-conformance", "--tensorizer-s3-endpoint=http://127.0.0.1:1",
        f"--tensorizer-s3-credentials={credentials}", "tensorizer-conformance/test_storage.py",
    )  # fmt: skip
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(f"*{words}*")


def test_a_directory_takes_the_place_of_the_tiny_models(pytester: pytest.Pytester) -> None:
    from pytest_tensorizer.models import ModelStore

    model = ModelStore(pytester.path / "models").get("gpt2")
    directory = model.directory.rename(pytester.path / "my-model")
    result = pytester.runpytest_subprocess(
        "--tensorizer-conformance", "--tensorizer-model=my-model", "-v",
        "tensorizer-conformance/test_outputs.py::test_engine",
        "tensorizer-conformance/test_outputs.py::test_identical[tensorizer-my-model-float32-local]",
    )  # fmt: skip
    assert directory.is_dir()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines("*test_identical[[]tensorizer-my-model-float32-local]*PASSED*")


@pytest.mark.parametrize("value", ["nowhere", "."])
def test_a_directory_that_is_no_checkpoint_is_a_usage_error(pytester: pytest.Pytester, value: str) -> None:
    result = pytester.runpytest_subprocess("--tensorizer-conformance", f"--tensorizer-model={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines("*--tensorizer-model*no checkpoint directory*config.json*")


def test_the_suite_hides_the_users_credentials(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A format that looks for credentials, on the local disk or anywhere, finds none of the user's."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "REAL")
    pytester.makepyfile(
        nosy="""
        import os
        from pytest_tensorizer.formats.torch import TorchFormat

        class Nosy(TorchFormat):
            name = "nosy"

            def save(self, tensors, target, **options):
                assert os.environ.get("AWS_ACCESS_KEY_ID") != "REAL", "found them"
                super().save(tensors, target, **options)
        """
    )
    result = pytester.runpytest_subprocess(
        "--tensorizer-conformance", "--tensorizer-format=nosy:Nosy", "tensorizer-conformance/test_storage.py",
        "tensorizer-conformance/test_roundtrip.py::test_collection",
    )  # fmt: skip
    assert result.ret == 0, result.stdout.str()
    assert os.environ["AWS_ACCESS_KEY_ID"] == "REAL"
