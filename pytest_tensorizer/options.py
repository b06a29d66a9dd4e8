"""The options of the command line, each with an ini twin of the same name, and what they were set to.

Named tuples, not dataclasses: every run of pytest imports this, and making a dataclass takes a millisecond.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

GROUP = "tensorizer conformance"


class Option(NamedTuple):
    """`--tensorizer-NAME` and `tensorizer_NAME`. `kind` is an ini type ("bool", "string", "args": a list), or "path".

    What has to do with no subject does without the prefix.

    A path on the command line is seen from where pytest was started, and one in an ini file from there.
    """

    name: str
    kind: str
    default: Any
    metavar: str
    help: str
    prefix: str = "tensorizer-"

    @property
    def flag(self) -> str:
        return f"--{self.prefix}{self.name}"

    @property
    def ini(self) -> str:
        return f"{self.prefix}{self.name}".replace("-", "_")


OPTIONS = (
    Option("conformance", "bool", False, "", "run the conformance suite; without a path, only that"),
    Option(
        "format", "args", ("tensorizer", "safetensors"), "NAME|pkg.mod:obj",
        "a format to test: tensorizer, safetensors, torch, or one of your own (repeatable)",
    ),
    Option(
        "engine", "string", "transformers", "NAME|pkg.mod:obj",
        "the engine that loads the checkpoints and generates (default: transformers)",
    ),
    Option(
        "prompt-embeds", "string", "reference", "NAME|pkg.mod:obj",
        "the prompt-embeds loader to test (default: the reference loader)",
    ),
    Option("model", "path", "", "DIR", "run the output checks on this checkpoint directory, not on the tiny models"),
    Option("device", "string", "auto", "DEVICE", "auto, cpu, cuda or cuda:N: where engines run (default: auto)"),
    Option("strict", "bool", False, "", "checks of level `should` gate too"),
    Option(
        "known-issues", "path", "", "FILE|off",
        "known issues in addition to the shipped ones, or `off`: expect none",
    ),
    Option(
        "require", "args", (), "NAME",
        "fail, rather than skip, the checks for which NAME (curl, libsodium, cuda, …) is missing (repeatable)",
    ),
    Option(
        "fuzz", "string", "", "SECONDS",
        "search for so long for examples that break the suite's rules; alone, run only the checks that do",
    ),
    Option("s3-endpoint", "string", "", "URL", "use this S3 service, not a server on 127.0.0.1"),
    Option(
        "s3-credentials", "string", "", "ID_VAR:SECRET_VAR",
        "the environment variables that hold access key and secret of --tensorizer-s3-endpoint",
    ),
    Option("fresh-process", "bool", False, "", "run every test in a process of its own, as with the marker", ""),
    Option(
        "fresh-process-preload", "string", "torch", "MODULES",
        "modules that those processes find imported, with spaces between them (default: torch)", "",
    ),
    Option(
        "accelerator-guard", "string", "", "error|warn|off",
        "what it means if something touches a GPU while tests are collected (default: warn; error with "
        "--tensorizer-conformance)", "",
    ),
)  # fmt: skip


def add(parser: pytest.Parser) -> None:
    group = parser.getgroup("tensorizer", GROUP)
    for option in OPTIONS:
        if option.kind == "bool":
            group.addoption(option.flag, action="store_true", default=None, dest=option.ini, help=option.help)
        else:
            action = "append" if option.kind == "args" else "store"
            group.addoption(
                option.flag, action=action, default=None, dest=option.ini, metavar=option.metavar, help=option.help
            )
        kind: Any = "string" if option.kind == "path" else option.kind
        parser.addini(option.ini, f"ini twin of {option.flag}", type=kind, default=option.default)


class Settings(NamedTuple):
    """The options as they stand: the command line where it says something, else the ini file, else the default."""

    conformance: bool
    format: tuple[str, ...]
    engine: str
    prompt_embeds: str
    model: str
    device: str
    strict: bool
    known_issues: str
    require: tuple[str, ...]
    fuzz: str
    s3_endpoint: str
    s3_credentials: str
    fresh_process: bool
    fresh_process_preload: str
    accelerator_guard: str
    explicit: frozenset[str]
    """The names of the options that somebody has set, on the command line or in the ini file."""

    @classmethod
    def of(cls, config: pytest.Config) -> Settings:
        if _SETTINGS not in config.stash:
            config.stash[_SETTINGS] = _read(config)
        return config.stash[_SETTINGS]

    @property
    def runs_suite(self) -> bool:
        """Whether the suite, or part of it, is brought into this session."""
        return self.conformance or "fuzz" in self.explicit

    def model_directory(self, config: pytest.Config) -> Path | None:
        """The directory of --tensorizer-model, taken from where pytest was started."""
        return config.invocation_params.dir / self.model if self.model else None


NEED_A_TERMINAL = {
    "usepdb": "--pdb", "trace": "--trace", "setupplan": "--setup-plan", "setuponly": "--setup-only",
    "setupshow": "--setup-show",
}  # fmt: skip
"""Options of pytest that want the terminal, which a clean process does not have."""


def needs_terminal(config: pytest.Config) -> str:
    """The option of those that is set, or "" if none is."""
    return next((flag for name, flag in NEED_A_TERMINAL.items() if config.getoption(name, default=False)), "")


_SETTINGS: pytest.StashKey[Settings] = pytest.StashKey()


def _read(config: pytest.Config) -> Settings:
    values: dict[str, Any] = {}
    explicit = set()
    for option in OPTIONS:
        given = config.getoption(option.ini, default=None)
        value = _from_ini(config, option) if given is None else given
        if option.kind == "args":
            value = tuple(value) or option.default
        if given is not None or value != option.default:
            explicit.add(option.name)
        values[option.name.replace("-", "_")] = value
    return Settings(**values, explicit=frozenset(explicit))


def _from_ini(config: pytest.Config, option: Option) -> Any:
    value = config.getini(option.ini)
    if option.kind == "path" and value not in ("", "off") and config.inipath is not None:
        return str(config.inipath.parent / value)
    return value
