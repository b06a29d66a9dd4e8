"""The subjects of a run: named as people write them, each told from the other, with their versions."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_tensorizer import engines, formats
from pytest_tensorizer.prompt_embeds import load_prompt_embeds
from pytest_tensorizer.resolve import TargetError
from pytest_tensorizer.suite.subjects import Subject, Subjects, loader_name

WRITE = "tensorizer-conformance/test_storage.py::test_write"


class _Format:
    suffix, capabilities = ".x", frozenset[str]()

    def __init__(self, name: Any, version: str | None = None) -> None:
        self.name = name
        if version:
            self.version = version

    def save(self, tensors: Any, target: Any) -> None: ...

    def load(self, source: Any) -> Any: ...


def _subjects(*found: Any) -> Subjects:
    engine = engines.resolve("transformers")
    return Subjects(list(found), engine, load_prompt_embeds, {"format:safetensors": "safetensors"})


def test_all_of_them_with_their_versions() -> None:
    from importlib.metadata import version

    listed = _subjects(formats.resolve("safetensors"), _Format("mine", "1.5"), _Format("bare")).all()
    assert listed[:3] == [
        Subject("format", "safetensors", version("safetensors"), "safetensors"),
        Subject("format", "mine", "1.5", "conftest.py"),
        Subject("format", "bare", "unknown", "conftest.py"),
    ]
    others = ["engine:transformers", "prompt-embeds:reference", "repository:own-tests"]
    assert [subject.id for subject in listed[3:]] == others
    assert listed[3].version == version("transformers")
    assert listed[4].version == version("pytest-tensorizer")


def test_replacing_some() -> None:
    before = _subjects(_Format("old"))
    after = before.replaced({"tensorizer_formats": (_Format("new"),)})
    assert [format.name for format in after.formats] == ["new"]
    assert after.engine is before.engine
    assert [format.name for format in before.replaced({}).formats] == ["old"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("twice", "two formats are called 'twice'"),
        *((name, "is no name for a format") for name in ("", "a b", "a/b", "a[b]", "a:b", "a@b", "é", "a\n", None, 3)),
    ],
)
def test_names_that_cannot_stand_in_ids(name: Any, message: str) -> None:
    given = [_Format("twice"), _Format(name)]
    with pytest.raises(TargetError, match=message):
        _subjects().replaced({"tensorizer_formats": given})


@pytest.mark.parametrize("name", ["my-format", "my_format", "int4+zstd", "v1.5"])
def test_names_that_can(name: str) -> None:
    assert _subjects().replaced({"tensorizer_formats": [_Format(name)]}).formats[0].name == name


def test_engines_and_loaders_are_looked_at_too() -> None:
    with pytest.raises(TargetError, match="fixture tensorizer_engine gives is 3, which lacks name, capabilities, load"):
        _subjects(_Format("x")).replaced({"tensorizer_engine": 3})
    with pytest.raises(TargetError, match="fixture tensorizer_prompt_embeds_loader gives is 'x', which lacks __call__"):
        _subjects(_Format("x")).replaced({"tensorizer_prompt_embeds_loader": "x"})


def test_names_of_loaders() -> None:
    class Loader:
        def __call__(self) -> None: ...

    class Named(Loader):
        name = "server"

    def load_prompt_embeds_of_mine() -> None: ...

    # A loader of another project may well have the name of ours.
    load_prompt_embeds_of_mine.__name__ = "load_prompt_embeds"
    assert loader_name(load_prompt_embeds) == "reference"
    assert loader_name(load_prompt_embeds_of_mine) == "load_prompt_embeds"
    assert loader_name(Loader()) == "Loader"
    assert loader_name(Named()) == "server"


BROKEN = """
import mine
raise RuntimeError("broken at import")
"""
WRONG = [
    ("format=nope", ("no format is called 'nope'", "tensorizer, safetensors, torch", "package.module:attribute")),
    ("format=no_such_module:Mine", ("format 'no_such_module:Mine'", "no module 'no_such_module'", "PYTHONPATH")),
    ("format=mine:Nope", ("format 'mine:Nope'", "'mine' has no attribute 'Nope'")),
    ("format=mine:torch", ("format 'mine:torch'", "lacks name, suffix, capabilities", "implement")),
    ("format=broken:Mine", ("importing 'broken' fails: RuntimeError: broken at import", "broken.py, line 3")),
    ("format=halfway:Mine", ("importing 'halfway' fails: ModuleNotFoundError", "absent_library", "halfway.py, line 1")),
    ("format=mine:NeedsArguments", ("NeedsArguments() fails: TypeError", "needs no arguments")),
    ("engine=nope", ("no engine is called 'nope'", "transformers")),
    ("engine=mine:Mine.name", ("engine 'mine:Mine.name'", "lacks")),
    ("prompt-embeds=nope", ("'nope'", "reference")),
    ("prompt-embeds=mine:Mine.name", ("'mine:Mine.name'", "cannot be called")),
]


@pytest.mark.parametrize(("option", "words"), WRONG, ids=[option for option, _ in WRONG])
def test_wrong_targets_are_usage_errors(repository: Any, option: str, words: tuple[str, ...]) -> None:
    repository.write("broken.py", BROKEN)
    repository.write("halfway.py", "import absent_library\n")
    with (repository.path / "mine.py").open("a") as file:
        file.write("\nclass NeedsArguments:\n    def __init__(self, level): ...\n")
    repository.run(f"--tensorizer-{option}", WRITE).assert_refused(*words)
    # No worker is started to find it out.
    repository.run(f"--tensorizer-{option}", WRITE, "-n", "2").assert_refused(*words)


def test_two_formats_of_one_name_are_a_usage_error(repository: Any) -> None:
    for arguments in (["mine:Mine", "mine:Mine"], ["torch", "torch"]):
        options = [f"--tensorizer-format={argument}" for argument in arguments]
        repository.run(*options, WRITE).assert_refused("two formats are called", "Rename one")
        repository.run(*options, WRITE, "-n", "2").assert_refused("two formats are called", "Rename one")


def test_targets_in_the_ini_file_are_found_from_below(repository: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.write("pytest.ini", "[pytest]\ntensorizer_format = mine:Mine safetensors\ntensorizer_strict = true\n")
    (repository.path / "sub").mkdir()
    monkeypatch.chdir(repository.path / "sub")
    run = repository.run(f"{WRITE}[mine-local]", f"{WRITE}[safetensors-local]")
    assert run.outcomes == {"passed": 2}, run.out + run.errors


def test_a_module_in_the_start_directory_shadows_nothing(repository: Any) -> None:
    repository.write("json.py", "raise RuntimeError\n")
    repository.write("torch.py", "raise RuntimeError\n")
    assert repository.run("--tensorizer-format=mine:Mine", f"{WRITE}[mine-local]").outcomes == {"passed": 1}
