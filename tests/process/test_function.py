from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_tensorizer.process import IsolatedError, RemoteTraceback, run_isolated
from pytest_tensorizer.process.ending import Ending
from tests.process.scenario import still_running


def add(a: int, b: int = 10) -> int:
    return a + b


def where() -> tuple[int, bool, bytes]:
    return os.getpid(), "torch" in sys.modules, os.read(0, 1)


class TwoArguments(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class HoldsALock(Exception):
    def __init__(self) -> None:
        super().__init__("locked")
        self.lock = threading.Lock()


def raise_(kind: str) -> None:
    print("never shown")
    if kind == "two":
        raise TwoArguments(1, 2)
    if kind == "lock":
        raise HoldsALock
    if kind == "fail":
        pytest.fail("by pytest")
    raise KeyError(kind)


def return_lock() -> object:
    return threading.Lock()


class OnlyThere:
    def __reduce__(self) -> Any:
        return _only_in, (os.getpid(),)


def _only_in(pid: int) -> None:
    if os.getpid() != pid:
        raise LookupError("only there")


def return_only_there() -> object:
    return OnlyThere()


def crash(how: str) -> None:
    print("printed before", flush=True)
    print("said before", file=sys.stderr)
    if how == "segv":
        os.close(2)
        faulthandler._sigsegv()  # type: ignore[attr-defined]
    if how == "exit":
        sys.exit(7)
    if how == "exit 0":
        sys.exit()
    if how == "_exit":
        os._exit(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "kill the watcher":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    if how == "at exit":
        import atexit

        atexit.register(os._exit, 9)
    if how == "rt":
        os.kill(os.getpid(), signal.SIGRTMIN + 6)


def hang(pids: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    Path(pids).write_text(f"{os.getpid()} {child.pid}\n")
    threading.Thread(target=time.sleep, args=(60,), name="other").start()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


def hang_with_big_memory() -> None:
    data = bytearray(150 << 20)
    time.sleep(60)
    del data


def loud(lines: int, close: bool) -> int:
    for _ in range(lines):
        print("x" * 99)
        print("y" * 99, file=sys.stderr)
    if close:
        sys.stdout.flush()
        os.close(1)
        os.close(2)
    return lines


def fork_and_return() -> int:
    if os.fork() == 0:
        return -1
    os.wait()
    return 1


def wait_for_nobody() -> str:
    try:
        os.wait()
    except ChildProcessError:
        return "nobody"
    return "somebody"


def nested(pids: str) -> None:
    run_isolated(hang, pids, timeout=None)


def hog(size: int) -> bytes:
    return b"x" * size


def big_result() -> bytes:
    return b"z" * (50 << 20)


def test_result_comes_back_from_another_process() -> None:
    assert run_isolated(add, 1) == 11
    pid, _, stdin = run_isolated(where)
    assert pid != os.getpid()
    assert stdin == b""
    _, has_torch, stdin = run_isolated(where, method="spawn")
    assert (has_torch, stdin) == (False, b"")


def test_result_may_be_big() -> None:
    assert len(run_isolated(big_result)) == 50 << 20


@pytest.mark.parametrize("method", ["zygote", "spawn"])
def test_memory_limit_is_that_of_the_call(method: str) -> None:
    with pytest.raises(MemoryError, match=r"^hog\(\) may allocate 64 MiB \(memory_limit\)$"):
        run_isolated(hog, 200 << 20, memory_limit="64MiB", method=method)
    assert len(run_isolated(hog, 50 << 20, memory_limit="64MiB", method=method)) == 50 << 20, "sending it costs more"


def test_exception_comes_with_the_remote_traceback() -> None:
    with pytest.raises(KeyError, match="oops") as caught:
        run_isolated(raise_, "oops")
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback)
    assert "raise KeyError(kind)" in str(cause)
    assert __file__ in str(cause)


@pytest.mark.parametrize(("kind", "message"), [("two", "^TwoArguments: 1 and 2$"), ("lock", "^HoldsALock: locked$")])
def test_exception_that_cannot_be_pickled(kind: str, message: str) -> None:
    with pytest.raises(RuntimeError, match=message) as caught:
        run_isolated(raise_, kind)
    assert "in raise_" in str(caught.value.__cause__)


def test_failure_of_pytest_comes_back() -> None:
    with pytest.raises(RuntimeError, match=r"^Failed: by pytest$"):
        run_isolated(raise_, "fail")


def test_result_that_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match=r"the result of return_lock\(\), a lock, cannot be pickled"):
        run_isolated(return_lock)
    with pytest.raises(
        TypeError, match=r"the result of return_only_there\(\) cannot be read here: LookupError: only there"
    ):
        run_isolated(return_only_there)


def test_function_and_arguments_have_to_travel() -> None:
    with pytest.raises(TypeError, match=r"could not find .*<lambda>\(\) .*: define it at the top level of a module"):
        run_isolated(lambda: None)

    def local() -> None:
        pass

    with pytest.raises(TypeError, match=r"local\(\) .*: define it at the top level"):
        run_isolated(local)
    with pytest.raises(TypeError, match=r"an argument for add\(\) cannot be pickled"):
        run_isolated(add, threading.Lock())  # type: ignore[arg-type]


def test_function_of_main(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add, "__module__", "__main__")
    with pytest.raises(TypeError, match=r"it stands in __main__"):
        run_isolated(add, 1)


@pytest.mark.parametrize("limits", [{"timeout": 0}, {"memory_limit": "4G"}])
def test_limits_are_checked_first(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"is no (timeout|memory size)"):
        run_isolated(add, 1, **limits)


@pytest.mark.parametrize(
    ("how", "told", "returncode"),
    [
        ("segv", "died of SIGSEGV", -signal.SIGSEGV),
        ("exit", "ended with exit status 7 before it had said that it was done", 7),
        ("exit 0", "ended with exit status 0 before it had said that it was done", 0),
        ("_exit", "ended with exit status 0 before it had said that it was done", 0),
        ("kill", "died of SIGKILL", -signal.SIGKILL),
        ("kill the watcher", "is lost, because the process that watched it died of SIGKILL,", -signal.SIGKILL),
        ("at exit", "ended with exit status 9", 9),
        ("rt", f"died of signal {signal.SIGRTMIN + 6}", -signal.SIGRTMIN - 6),
    ],
)
def test_end_without_a_result_is_told(how: str, told: str, returncode: int) -> None:
    with pytest.raises(IsolatedError) as caught:
        run_isolated(crash, how, timeout=30)
    message, ending = str(caught.value), caught.value.ending
    assert message.startswith(f"the clean process of crash() {told} after ")
    assert "--- stdout ---\nprinted before\n" in message
    assert "--- stderr ---\nsaid before\n" in message
    assert (ending.returncode, ending.timed_out, ending.clean) == (returncode, False, False)
    if how == "segv":
        assert "Segmentation fault" in message
        assert ", line " in message
        assert " in crash\n" in message


def test_peak_is_that_of_the_child() -> None:
    here = bytearray(300 << 20)
    with pytest.raises(IsolatedError) as caught:
        run_isolated(crash, "segv", method="spawn")
    assert 5 << 20 < caught.value.ending.peak_bytes < 200 << 20
    del here
    with pytest.raises(IsolatedError, match=r"was killed after \d\.\d\d s \(peak \d+ MiB\)") as caught:
        run_isolated(hang_with_big_memory, timeout=2, method="spawn")
    assert 150 << 20 < caught.value.ending.peak_bytes < 300 << 20


def test_error_survives_pickling() -> None:
    error = IsolatedError("text", Ending(-11, False, False, 1.0, 2, "out", "err"))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.ending) == ("text", error.ending)


@pytest.mark.parametrize("function", [hang, nested])
def test_timeout_tells_stacks_and_leaves_nothing(function: Any, tmp_path: Path) -> None:
    with pytest.raises(IsolatedError, match="did not end in time and was killed") as caught:
        run_isolated(function, str(tmp_path / "pids"), timeout=4)
    assert caught.value.ending.timed_out
    assert caught.value.ending.duration < 10
    assert f" in {function.__name__}\n" in str(caught.value)
    assert "When the time was over:" in str(caught.value)
    assert "Extension modules" not in str(caught.value)
    if function is hang:
        assert "in run\n" in str(caught.value), "the stack of the other thread"
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    assert still_running(pids) == []


def test_output_does_not_get_in_the_way() -> None:
    assert run_isolated(loud, 20_000, False) == 20_000
    assert run_isolated(loud, 10, True) == 10


def test_fork_of_the_function_has_no_say() -> None:
    assert run_isolated(fork_and_return) == 1


def test_the_function_sees_no_child_of_ours() -> None:
    assert run_isolated(wait_for_nobody) == "nobody"


def test_no_descriptor_is_left_open() -> None:
    run_isolated(add, 1)
    before = os.listdir("/proc/self/fd")
    run_isolated(add, 1)
    with pytest.raises(IsolatedError):
        run_isolated(crash, "kill")
    assert os.listdir("/proc/self/fd") == before
