"""The zygote in a session: how often it starts, what becomes of one that fails, what its tests find."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.scenario import command, environment, run_pytest, still_running, write

NOTES = """
    import os
    from pathlib import Path

    def note(what):
        with open(os.environ["NOTES"], "a") as file:
            print(what, os.getpid(), file=file)

    def pytest_sessionstart(session):
        note("session")

    def pytest_collection_finish(session):
        note("collection")
"""


def notes(directory: Path) -> dict[str, set[int]]:
    """What was noted -> the processes that did."""
    found: dict[str, set[int]] = {}
    for line in (directory / "notes").read_text().splitlines():
        what, pid = line.split()
        found.setdefault(what, set()).add(int(pid))
    return found


MIXED = """
    import os
    import pytest
    from conftest import note

    def test_here():
        note("test")

    @pytest.mark.fresh_process
    @pytest.mark.parametrize("n", range(5))
    def test_elsewhere(n):
        note("test")

    @pytest.mark.fresh_process
    class TestIt:
        def test_elsewhere(self):
            note("test")

        @pytest.mark.fresh_process(method="spawn")
        def test_afresh(self):
            note("afresh")
"""


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    return write(tmp_path / "mixed", conftest=NOTES, test_mixed=MIXED)


@pytest.mark.parametrize(
    ("args", "sessions", "processes"),
    [
        (["-k", "test_here"], 1, 1),  # nothing is started where no test is marked
        (["-k", "not afresh"], 2, 7),  # one session, one collection more, and each test in a process of its own
        (["-k", "afresh"], 2, 0),  # no zygote for a test that does not want it
        ([], 3, 7),
    ],
)
def test_one_session_and_one_collection_are_added(mixed: Path, args: list[str], sessions: int, processes: int) -> None:
    run = run_pytest(mixed, *args, NOTES=str(mixed / "notes"))
    assert run.returncode == 0, run.text
    seen = notes(mixed)
    assert len(seen["session"]) == len(seen["collection"]) == sessions
    assert len(seen.get("test", ())) == processes
    assert still_running([pid for pids in seen.values() for pid in pids]) == []


@pytest.mark.parametrize("way", ["option", "ini"])
def test_every_test_may_run_so(mixed: Path, way: str) -> None:
    if way == "ini":
        (mixed / "pytest.ini").write_text("[pytest]\nfresh_process = true\n")
    run = run_pytest(mixed, *(["--fresh-process"] if way == "option" else []), NOTES=str(mixed / "notes"))
    assert run.returncode == 0, run.text
    seen = notes(mixed)
    assert not seen["test"] & seen["session"]
    assert len(seen["test"]) == 7


def test_preload(tmp_path: Path) -> None:
    tests = """
        import os, sys
        import pytest

        BEFORE = {name for name in ("torch", "preloaded_one") if name in sys.modules}

        @pytest.mark.fresh_process
        def test_it():
            assert sorted(BEFORE) == os.environ["FOUND"].split()
    """
    directory = write(tmp_path / "tests", test_it=tests, preloaded_one="")
    (directory / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    path = {"PYTHONPATH": str(directory)}
    for args, found in [
        ([], "torch"),
        (["--fresh-process-preload="], ""),
        (["--fresh-process-preload=preloaded_one torch"], "preloaded_one torch"),
    ]:
        run = run_pytest(directory, *args, FOUND=found, **path)
        assert run.outcomes("test_it")["call"] == "passed", run.text
    run = run_pytest(directory, "-o", "fresh_process_preload=preloaded_one missing_one", **path)
    assert run.failure("test_it") == "fresh_process_preload: there is no module 'missing_one'"


ONE_DIES = """
    import os, signal
    import pytest

    pytestmark = pytest.mark.fresh_process

    def test_before(): ...

    def test_kills_the_zygote():
        print("last words")
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()

    def test_after(): ...

    def test_after_that(): ...
"""


def test_the_run_goes_on_with_a_new_zygote(tmp_path: Path) -> None:
    run = run_pytest(write(tmp_path / "tests", conftest=NOTES, test_it=ONE_DIES), NOTES=str(tmp_path / "tests/notes"))
    text = run.failure("test_kills_the_zygote")
    assert text.startswith("the clean process is lost, because the process that watched it died of SIGKILL, after")
    assert "last words" in text
    for name in ("test_before", "test_after", "test_after_that"):
        assert set(run.outcomes(name).values()) == {"passed"}, run.text
    seen = notes(tmp_path / "tests")
    assert len(seen["session"]) == 3
    assert still_running([pid for pids in seen.values() for pid in pids]) == []


def test_one_killed_between_two_tests_is_replaced(tmp_path: Path) -> None:
    tests = """
        import os, signal
        import pytest

        @pytest.mark.fresh_process
        def test_before():
            with open("pid", "w") as file:
                print(os.getppid(), file=file)

        def test_kill():
            pid = int(open("pid").read())
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

        @pytest.mark.fresh_process
        def test_after(): ...
    """
    run = run_pytest(write(tmp_path / "tests", test_it=tests))
    assert run.returncode == 0, run.text


@pytest.mark.parametrize("how", ["exits", "raises", "has no such plugin"])
def test_one_that_cannot_start_is_an_error_of_each_test(tmp_path: Path, how: str) -> None:
    conftest = """
        if getattr(__import__("sys"), "argv", [""])[0] == "-c":  # how clean processes are started
            with open(os.environ["NOTES"], "a") as file:
                print("started", os.getpid(), file=file)
            print("out of the conftest")
            if os.environ["HOW"] == "exits":
                os._exit(0)
            if os.environ["HOW"] == "raises":
                raise LookupError("not there")
            pytest_plugins = ["no_such_plugin"]
    """
    tests = """
        import pytest

        @pytest.mark.fresh_process
        @pytest.mark.parametrize("n", range(4))
        def test_elsewhere(n): ...

        def test_here(): ...
    """
    directory = write(tmp_path / "tests", conftest=conftest, test_it=tests)
    run = run_pytest(directory, HOW=how, NOTES=str(directory / "notes"))
    reason = {
        "exits": "ended with exit status 0 before it was ready",
        "raises": "could not get ready:\n(.*\n)*.*LookupError: not there",
        "has no such plugin": 'could not get ready:\n(.*\n)*.*"no_such_plugin"',
    }[how]
    for n in range(4):
        assert run.outcomes(f"test_elsewhere[{n}]") == {"setup": "failed", "teardown": "passed"}
        text = run.failure(f"test_elsewhere[{n}]")
        assert re.match(f"the process that was to run it {reason}", text), text
        assert "out of the conftest" in text
        assert "During handling" not in text
    assert set(run.outcomes("test_here").values()) == {"passed"}
    assert len(notes(directory)["started"]) == 2, "after two that did not start, no more are tried"


def test_threads_are_as_many_as_without(tmp_path: Path) -> None:
    """A matrix product of a test module makes no pool of threads in the zygote, which its forks would wait for."""
    conftest = """
        import torch
        torch.set_num_threads(2)
    """
    tests = """
        import pytest, torch

        product = torch.rand(300, 300) @ torch.rand(300, 300)

        @pytest.mark.fresh_process
        @pytest.mark.parametrize("n", range(3))
        def test_it(n):
            assert torch.get_num_threads() == 2
            assert (product @ product).shape == (300, 300)
    """
    run = run_pytest(write(tmp_path / "tests", conftest=conftest, test_it=tests))
    assert run.returncode == 0, run.text


def test_an_accelerator_of_the_zygote_makes_tests_run_afresh(tmp_path: Path) -> None:
    conftest = """
        import torch
        torch.cuda._is_in_bad_fork = lambda: os.getppid() == TOUCHED
        TOUCHED = os.getpid()
    """
    tests = """
        import os
        import pytest

        @pytest.mark.fresh_process
        @pytest.mark.parametrize("n", range(2))
        def test_it(n):
            with open(os.environ["RAN"], "a") as file:
                file.write("ran ")
    """
    run = run_pytest(
        write(tmp_path / "tests", conftest=conftest, test_it=tests), "-W", "default", RAN=str(tmp_path / "ran")
    )
    assert run.returncode == 0, run.text
    assert (tmp_path / "ran").read_text() == "ran ran "
    told = [record["warning"] for record in run.records if "warning" in record]
    assert len(told) == 1
    assert told[0].startswith("fresh_process: collecting the tests initialises an accelerator, so each runs in a fresh")


def test_session_hooks_of_the_zygote_are_both_called(tmp_path: Path) -> None:
    """A server that a conftest starts for its session and ends with it does not stay behind."""
    conftest = """
        import subprocess, sys

        def pytest_sessionstart(session):
            session.config.server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

        def pytest_sessionfinish(session):
            session.config.server.terminate()
            with open(os.environ["ENDED"], "a") as file:
                print(session.config.server.wait(), file=file)
    """
    tests = """
        import os
        import pytest

        @pytest.mark.fresh_process
        def test_it(request):
            os.kill(request.config.server.pid, 0)
    """
    run = run_pytest(write(tmp_path / "tests", conftest=conftest, test_it=tests), ENDED=str(tmp_path / "ended"))
    assert run.returncode == 0, run.text
    assert (tmp_path / "ended").read_text() == "-15\n-15\n"


def test_hypothesis_keeps_its_failing_example(tmp_path: Path) -> None:
    tests = """
        import os
        import pytest
        from hypothesis import given, settings, strategies as st

        @pytest.mark.fresh_process
        @given(st.integers())
        def test_it(n):
            with open(os.environ["SEEN"], "a") as file:
                print(n, file=file)
            assert n < 1000
    """
    directory = write(tmp_path / "tests", test_it=tests)
    first = run_pytest(directory, "-p", "no:randomly", SEEN=str(tmp_path / "first"))
    assert "n=1000" in first.failure("test_it")
    assert any((directory / ".hypothesis" / "examples").iterdir())
    second = run_pytest(directory, SEEN=str(tmp_path / "second"))
    assert "n=1000" in second.failure("test_it")
    assert (tmp_path / "second").read_text().splitlines()[0] == "1000", "the example of the first run comes first"


def test_the_log_file_of_the_session_is_not_begun_anew(tmp_path: Path) -> None:
    tests = """
        import logging
        import pytest

        def test_here():
            logging.warning("in the parent")

        @pytest.mark.fresh_process
        @pytest.mark.parametrize("method", [1, 2])
        def test_elsewhere(method): ...
    """
    directory = write(tmp_path / "tests", test_it=tests)
    run = run_pytest(directory, "--log-file=log")
    assert run.returncode == 0, run.text
    assert "in the parent" in (directory / "log").read_text()


COVERED = """
    def only_in_a_clean_process():
        return 1
"""


def test_coverage(tmp_path: Path) -> None:
    pytest.importorskip("coverage")
    tests = """
        import pytest
        from covered import only_in_a_clean_process

        @pytest.mark.fresh_process
        @pytest.mark.parametrize("n", range(2))
        def test_it(n):
            assert only_in_a_clean_process() == 1

        @pytest.mark.fresh_process(method="spawn")
        def test_afresh():
            assert only_in_a_clean_process() == 1
    """
    directory = write(tmp_path / "tests", test_it=tests, covered=COVERED)
    (directory / ".coveragerc").write_text("[run]\npatch = subprocess\nparallel = true\nsource = .\n")
    for selected in ("test_it", "test_afresh"):
        for file in directory.glob(".coverage.*"):
            file.unlink()
        for args in (["run", "-m", "pytest", "-q", "-k", selected], ["combine", "-q"], ["report", "-m"]):
            done = subprocess.run(
                [sys.executable, "-m", "coverage", *args],
                cwd=directory, env=environment(directory), capture_output=True, text=True, timeout=120,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(r"covered\.py +2 +0 +100%", done.stdout), done.stdout


def test_two_runs_at_once(mixed: Path) -> None:
    runs = [
        subprocess.Popen(
            command("-q"), cwd=mixed, env=environment(mixed, NOTES=str(mixed / f"notes-{n}")),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for n in range(2)
    ]  # fmt: skip
    for run in runs:
        output, _ = run.communicate(timeout=120)
        assert run.returncode == 0, output
        assert "8 passed" in output


@pytest.mark.parametrize(
    ("how", "status", "told"),
    [('pytest.exit("had enough", returncode=7)', 7, "Exit: had enough"), ("raise KeyboardInterrupt", 2, "KeyboardInt")],
)
def test_what_ends_a_session_ends_it(tmp_path: Path, how: str, status: int, told: str) -> None:
    tests = """
        import pytest

        pytestmark = pytest.mark.fresh_process

        def test_before(): ...

        def test_exit():
            HOW

        def test_after(): ...
    """
    run = run_pytest(write(tmp_path / "tests", test_it=tests.replace("HOW", how)))
    assert run.returncode == status
    assert told in run.text
    assert set(run.outcomes("test_before").values()) == {"passed"}
    assert run.reports("test_after") == []


@pytest.mark.parametrize("what", ["file", "fork"])
def test_a_process_that_cannot_be_had_is_an_error_of_the_test(tmp_path: Path, what: str) -> None:
    """No room for the output, or no process: an error of each test, and not of pytest."""
    conftest = """
        import tempfile

        def fails(*args, **kwargs):
            raise OSError(28, "No space left on device")

        def pytest_runtest_protocol(item):
            if os.environ["WHAT"] == "file" and not hasattr(item.config, "workerinput"):
                tempfile.TemporaryFile = fails

        def pytest_collection_finish(session):
            if os.environ["WHAT"] == "fork" and hasattr(session.config, "workerinput"):
                os.fork = fails
    """
    tests = """
        import pytest

        def test_here(): ...

        @pytest.mark.fresh_process
        @pytest.mark.parametrize("n", range(2))
        def test_it(n): ...
    """
    run = run_pytest(write(tmp_path / "tests", conftest=conftest, test_it=tests), "-p", "no:logging", WHAT=what)
    assert "INTERNALERROR" not in run.text
    for n in range(2):
        assert run.outcomes(f"test_it[{n}]") == {"setup": "failed", "teardown": "passed"}
        assert "No space left on device" in run.failure(f"test_it[{n}]")
    assert set(run.outcomes("test_here").values()) == {"passed"}
