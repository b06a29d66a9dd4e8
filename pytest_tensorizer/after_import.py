"""Doing something when a module is imported by whoever comes first, without importing it oneself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class AfterImport:
    """Calls `act(module)` right after the module `name` has been executed, or now if it has been already.

    What imports it meanwhile sees nothing of this: spec and loader are its own, and the finder leaves `sys.meta_path`
    with the import, or with :meth:`cancel`.
    """

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._act = act
        self._searching = False
        module = sys.modules.get(name)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            act(module)
        else:
            sys.meta_path.insert(0, self)

    def cancel(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self._searching:
            return None
        self._searching = True
        try:
            spec = next(filter(None, (f.find_spec(fullname, path, target) for f in sys.meta_path)), None)
        finally:
            self._searching = False
        loader = spec.loader if spec is not None else None
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # another of us may have done it
            execute(module)  # a failed import may be tried again: we stay for that
            self.cancel()
            self._act(module)

        # On the instance, so that the loader stays what it is for those who look at it.
        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
