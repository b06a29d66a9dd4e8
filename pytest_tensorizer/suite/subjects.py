"""The subjects of a run: which formats, which engine, which prompt-embeds loader, and of which version."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_tensorizer.engines import checked as checked_engine
from pytest_tensorizer.formats import checked as checked_format
from pytest_tensorizer.options import Settings
from pytest_tensorizer.resolve import TargetError, implementing, module_version

if TYPE_CHECKING:
    from pytest_tensorizer.engines import Engine
    from pytest_tensorizer.formats import Format
    from pytest_tensorizer.prompt_embeds import PromptEmbedsLoader


REPOSITORY = "own-tests"
"""The name of the repository as a subject, whichever it is."""


@dataclass(frozen=True)
class Subject:
    """One subject as the report shows it. `target` is what was given on the command line."""

    kind: str
    name: str
    version: str
    target: str

    @property
    def id(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass
class Subjects:
    """The objects under test. Made once in each process, by importing what was named."""

    formats: list[Format]
    engine: Engine
    loader: PromptEmbedsLoader
    targets: dict[str, str] = field(default_factory=dict)

    @classmethod
    def resolve(cls, settings: Settings) -> Subjects:
        """Import the subjects that the options name.

        Raises:
            TargetError: one of them is not there, is not what it should be, or two formats have one name.
        """
        from pytest_tensorizer import engines, formats, prompt_embeds

        chosen = [formats.resolve(target) for target in settings.format]
        _distinct(chosen)
        engine = engines.resolve(settings.engine)
        targets = {f"format:{format.name}": target for format, target in zip(chosen, settings.format, strict=True)}
        targets[f"engine:{engine.name}"] = settings.engine
        loader = prompt_embeds.resolve(settings.prompt_embeds)
        targets[f"prompt-embeds:{loader_name(loader)}"] = settings.prompt_embeds
        return cls(chosen, engine, loader, targets)

    def replaced(self, values: dict[str, Any]) -> Subjects:
        """With the subjects that fixtures of the root conftest give instead: `values` by name of the fixture.

        Raises:
            TargetError: one is not what it should be.
        """
        formats = values.get("tensorizer_formats", self.formats)
        if not isinstance(formats, (list, tuple)) or not formats:
            raise TargetError(f"the fixture tensorizer_formats gives {formats!r}: return a list of formats")
        for name, value in values.items():
            where = f"what the fixture {name} gives"
            if name == "tensorizer_formats":
                for found in value:
                    checked_format(found, where=where)
            elif name == "tensorizer_engine":
                checked_engine(value, where=where)
            else:
                implementing(
                    value, ("__call__",), where=where, protocol="pytest_tensorizer.prompt_embeds.PromptEmbedsLoader"
                )
        formats = list(formats)
        _distinct(formats)
        return Subjects(
            formats,
            values.get("tensorizer_engine", self.engine),
            values.get("tensorizer_prompt_embeds_loader", self.loader),
            self.targets,
        )

    def names(self) -> dict[str, str]:
        """Names of the subjects of which there is one."""
        return {"engine": self.engine.name, "prompt-embeds": loader_name(self.loader), "repository": REPOSITORY}

    def imports(self) -> set[str]:
        """The modules that they say they import only when they are used."""
        return {name for found in [*self.formats, self.engine] for name in getattr(found, "imports", ())}

    def all(self) -> list[Subject]:
        objects: list[tuple[str, str, object]] = [("format", f.name, f) for f in self.formats]
        objects.append(("engine", self.engine.name, self.engine))
        objects.append(("prompt-embeds", loader_name(self.loader), self.loader))
        chosen = [
            Subject(kind, name, _version(found), self.targets.get(f"{kind}:{name}", "conftest.py"))
            for kind, name, found in objects
        ]
        return [*chosen, Subject("repository", REPOSITORY, "-", "")]


def loader_name(loader: Any) -> str:
    """`loader.name` where it has one, else the name of the function."""
    from pytest_tensorizer.prompt_embeds import load_prompt_embeds

    if loader is load_prompt_embeds:
        return "reference"
    return str(getattr(loader, "name", None) or getattr(loader, "__name__", None) or type(loader).__name__)


def _version(found: object) -> str:
    return str(getattr(found, "version", None) or module_version(found))


def _distinct(formats: list[Format]) -> None:
    names = [format.name for format in formats]
    for name in names:
        if names.count(name) > 1:
            raise TargetError(f"two formats are called {name!r}: results could not be told apart. Rename one")
        if not isinstance(name, str) or not re.fullmatch(r"[\w.+-]+", name, re.ASCII):
            raise TargetError(f"{name!r} is no name for a format: it stands in ids, so use ASCII letters, digits, _.+-")
