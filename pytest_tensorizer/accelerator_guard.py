"""Who touches an accelerator? File, line and the imports that led there.

`torch.cuda.is_initialized()` cannot tell: `is_available()` and `device_count()` call into the driver, which spoils
every later fork, and leave it False. So the functions themselves are watched, with recorders in place of their code: an
alias made by `from torch.cuda import is_available` is the same function and is caught too. Nothing here imports torch.
"""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType, FunctionType, ModuleType
from typing import Any

from pytest_tensorizer.after_import import AfterImport

NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""The environment variable which, at 1, makes torch count CUDA devices without the driver."""

# What all else in torch goes through. `torch.accelerator` asks the others, on a build that has one.
WATCHED = {
    "torch.cuda": ("_lazy_init", "is_available", "device_count"),
    "torch.xpu": ("_lazy_init", "is_available", "device_count"),
    "torch.accelerator": ("is_available", "device_count"),
}
MACHINERY = {"importlib", "_pytest", "pytest", "runpy"}
TOO_LATE = """\
The accelerator's driver was touched by a plugin that pytest loaded before the accelerator guard.
`python -X importtime -m pytest --co` shows who imports torch; with `-p tensorizer` as the first -p of the command
line the guard comes before it and names the culprit."""


class Touch:
    """Something that happened, and the (file, line) of each call that led there, outermost first, as far as is known.

    What is not `certain` is a question that only some builds of torch pass on to the driver.
    """

    # A plain class: every run of pytest makes it, and a named tuple would double the time that takes.
    def __init__(self, event: str, chain: tuple[tuple[str, int], ...] = (), certain: bool = True) -> None:
        self.event, self.chain, self.certain = event, chain, certain


class AcceleratorGuard:
    """Between `with AcceleratorGuard() as guard:` and its end, `guard.touches` lists who touches an accelerator.

    Of guards within guards the innermost is told. `devices` are the files which a process that uses a GPU has open,
    whatever framework it uses.
    """

    devices: tuple[str, ...] = ("/dev/nvidia-uvm", "/dev/kfd")

    def __init__(self) -> None:
        self.touches: list[Touch] = []
        self._seen: set[tuple[Any, ...]] = set()
        self._spoilt = False

    def __enter__(self) -> AcceleratorGuard:
        self.install()
        return self

    def __exit__(self, *exception: object) -> None:
        self.settle()
        self.remove()

    def install(self) -> None:
        self._torch_came_first = "torch.cuda" in sys.modules
        self._initialized = _any_backend("is_initialized")
        self._open = self._open_devices()
        if not _guards:
            _finders[:] = [AfterImport(name, _watch_functions) for name in WATCHED]
        _guards.append(self)

    def remove(self) -> None:
        """Undo :meth:`install`; once is enough."""
        if self not in _guards:
            return
        _guards.remove(self)
        if not _guards:
            for finder in _finders:
                finder.cancel()
            for recorder in _recorders.values():
                recorder.restore()

    def record(self, function: str, frame: FrameType) -> None:
        """`function` is called from `frame`."""
        certain = function.endswith("._lazy_init")
        chain = _chain(frame)
        # One line may well ask twice, and torch's functions call each other: the first tells it all.
        if (chain, certain) not in self._seen:
            self._seen.add((chain, certain))
            self.touches.append(Touch(f"{function}() was called", chain, certain))

    def look_back(self) -> None:
        """Add what happened before the guard came, if something did."""
        if self._initialized or (self._torch_came_first and not self.touches and self._forks_are_spoilt()):
            self.touches.insert(0, Touch(TOO_LATE))
        self._initialized = self._torch_came_first = False

    def settle(self, start: int = 0) -> list[Touch]:
        """Strike those from `touches[start:]` which did no harm, add what only the open files show; returns the rest.

        Costs a fork where torch is a build for an accelerator and was asked for one.
        """
        new = self.touches[start:]
        if not all(touch.certain for touch in new) and self._forks_are_spoilt() is False:
            self._seen.difference_update((touch.chain, False) for touch in new)
            new = [touch for touch in new if touch.certain]
        opened = self._open_devices()
        if not new:
            names = sorted({device for _, device in opened - self._open})
            new = [Touch(f"{name} was opened, it is not known by whom,") for name in names]
        self._open = opened
        self.touches[start:] = new
        return new

    def _forks_are_spoilt(self) -> bool | None:
        """Whether a fork of this process finds that it can't use the accelerator. None: that can't be known."""
        build = getattr(sys.modules.get("torch"), "version", None)
        if not hasattr(os, "fork") or not any(getattr(build, name, None) for name in ("cuda", "hip", "xpu")):
            return None
        if not self._spoilt:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of threads, which are no concern of a child that only answers
                    pid = os.fork()
                if pid == 0:
                    answer = 0
                    try:
                        answer = int(_any_backend("_is_in_bad_fork"))
                    finally:
                        os._exit(answer)
                _, status = os.waitpid(pid, 0)
            except OSError:  # no process to be had, or somebody else reaps all children
                return None
            self._spoilt = status != 0
        return self._spoilt

    def _open_devices(self) -> set[tuple[str, str]]:
        """(descriptor, path) of the devices that this process has open."""
        if sys.platform != "linux" or not any(map(os.path.exists, self.devices)):
            return set()
        found = set()
        for descriptor in os.listdir("/proc/self/fd"):
            try:
                path = os.readlink(f"/proc/self/fd/{descriptor}")
            except OSError:  # that of the listing itself
                continue
            if path in self.devices:
                found.add((descriptor, path))
        return found


_guards: list[AcceleratorGuard] = []
_finders: list[AfterImport] = []
_recorders: dict[str, _Recorder] = {}


class _Recorder:
    """Stands in for the code of `function`, so that whoever has got hold of the function is heard."""

    def __init__(self, name: str, function: FunctionType) -> None:
        self._function = function
        code = function.__code__
        self.original = FunctionType(
            code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        self.original.__kwdefaults__ = function.__kwdefaults__
        # Code that is swapped sees the globals of the function: its name has to be among the constants. And the number
        # of free variables has to stay.
        template = _recorder.__code__
        constants = tuple(name if constant == "NAME" else constant for constant in template.co_consts)
        self._code = template.replace(co_consts=constants, co_name=code.co_name, co_freevars=code.co_freevars)
        function.__code__ = self._code

    def restore(self) -> None:
        if self._function.__code__ is self._code:
            self._function.__code__ = self.original.__code__


def _recorder(*args: Any, **kwargs: Any) -> Any:
    __tracebackhide__ = True
    from pytest_tensorizer.accelerator_guard import _called

    return _called("NAME", args, kwargs)


def _called(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    __tracebackhide__ = True
    forgiven = not name.startswith("torch.xpu") and os.environ.get(NVML_CHECK) == "1"
    if _guards and (not forgiven or name.endswith("._lazy_init")):
        _guards[-1].record(name, sys._getframe(2))
    return _recorders[name].original(*args, **kwargs)


def _watch_functions(module: ModuleType) -> None:
    for name in WATCHED[module.__name__]:
        function: Any = getattr(module, name, None)
        while hasattr(function, "__wrapped__"):  # a cache, whose answers don't need the driver
            function = function.__wrapped__
        if isinstance(function, FunctionType):
            full_name = f"{module.__name__}.{name}"
            _recorders[full_name] = _Recorder(full_name, function)


def _any_backend(question: str) -> bool:
    """Whether one of torch's backends, of those that are imported, says yes to `question`."""
    backends = [sys.modules.get(name) for name in ("torch.cuda", "torch.xpu")]
    return any(getattr(backend, question)() for backend in backends if hasattr(backend, question))


def _chain(frame: FrameType | None) -> tuple[tuple[str, int], ...]:
    """The calls that led to `frame`, from the hook on that pytest has called; torch is left out where it is last."""
    chain: list[tuple[str, int]] = []
    last = {"torch", "pytest_tensorizer"}
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package == "pluggy":
            break
        if package not in MACHINERY and (chain or package not in last):
            chain.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(reversed(chain))
