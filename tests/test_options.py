"""Every option has an ini twin, and the command line wins."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_tensorizer.options import OPTIONS, Settings


def _settings(pytester: pytest.Pytester, *arguments: str) -> Settings:
    return Settings.of(pytester.parseconfig(*arguments))


def test_defaults(pytester: pytest.Pytester) -> None:
    settings = _settings(pytester)
    assert settings == Settings(
        conformance=False, format=("tensorizer", "safetensors"), engine="transformers", prompt_embeds="reference",
        model="", device="auto", strict=False, known_issues="", require=(), fuzz="", s3_endpoint="", s3_credentials="",
        fresh_process=False, fresh_process_preload="torch", accelerator_guard="", explicit=frozenset(),
    )  # fmt: skip


GIVEN: dict[str, Any] = {
    "conformance": True, "format": ("a:B", "torch"), "engine": "x:Y", "prompt-embeds": "p:q", "model": "m",
    "device": "cpu", "strict": True, "known-issues": "issues.toml", "require": ("curl", "cuda"), "fuzz": "60",
    "s3-endpoint": "http://127.0.0.1:9", "s3-credentials": "A:B",
    "fresh-process": True, "fresh-process-preload": "torch numpy", "accelerator-guard": "off",
}  # fmt: skip


def test_every_option_has_a_twin(pytester: pytest.Pytester) -> None:
    assert GIVEN.keys() == {option.name for option in OPTIONS}
    line: list[str] = []
    for option in OPTIONS:
        value = GIVEN[option.name]
        for one in value if isinstance(value, tuple) else [value]:
            line.append(option.flag if value is True else f"{option.flag}={one}")
    given = _settings(pytester, *line)
    assert given.explicit == GIVEN.keys()
    assert {name: getattr(given, name.replace("-", "_")) for name in GIVEN} == GIVEN

    ini = "".join(
        f"{option.ini} = {' '.join(value) if isinstance(value := GIVEN[option.name], tuple) else value}\n"
        for option in OPTIONS
    )
    pytester.makeini(f"[pytest]\naddopts = --strict-config\n{ini}")
    twin = _settings(pytester)
    assert twin.explicit == GIVEN.keys()
    paths = {name: str(pytester.path / GIVEN[name]) for name in ("model", "known-issues")}
    assert {name: getattr(twin, name.replace("-", "_")) for name in GIVEN} == {**GIVEN, **paths}


def test_the_command_line_wins(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntensorizer_format = a:B\ntensorizer_device = cuda\ntensorizer_known_issues = x.toml\n")
    settings = _settings(pytester, "--tensorizer-format=torch", "--tensorizer-device=cpu")
    assert (settings.format, settings.device) == (("torch",), "cpu")
    assert _settings(pytester, "--tensorizer-known-issues=off").known_issues == "off"


def test_paths(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the command line seen from where pytest was started, in the ini file from there."""
    pytester.makeini("[pytest]\ntensorizer_model = here\ntensorizer_known_issues = off\n")
    below = pytester.mkdir("below")
    monkeypatch.chdir(below)
    config = pytester.parseconfig()
    assert Settings.of(config).model_directory(config) == pytester.path / "here"
    assert Settings.of(config).known_issues == "off"
    config = pytester.parseconfig("--tensorizer-model=there")
    assert Settings.of(config).model_directory(config) == below / "there"
    config = pytester.parseconfig("-o", "tensorizer_model=")
    assert Settings.of(config).model_directory(config) is None
