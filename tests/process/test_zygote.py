"""A zygote without pytest: what it gets ready, how it ends, and what becomes of what its children leave behind."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_tensorizer.process import ZygoteError
from pytest_tensorizer.process.conversation import UnfitError
from pytest_tensorizer.process.transport import Channel, wait
from pytest_tensorizer.process.zygote import Zygote
from tests.process.scenario import is_running, still_running


@dataclass(frozen=True)
class Do:
    """A job that calls a function of this module with what the zygote has prepared, and sends the result."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, channel: Channel, prepared: Any) -> None:
        channel.send("result", self.function(prepared, *self.args))


@dataclass(frozen=True)
class Ready:
    """A template that calls a function of this module and serves its result."""

    function: Callable[[], Any]

    def prepare(self, serve: Callable[[Any], None]) -> str:
        serve(self.function())
        return ""


class Refuses:
    def prepare(self, serve: Callable[[Any], None]) -> str:
        print("tried hard")
        return "no tests here"


def results(zygote: Zygote, function: Callable[..., Any], *args: Any, timeout: float = 30) -> Any:
    """What the function returns in a child, which must end well."""
    messages: list[tuple[Any, ...]] = []
    ending = zygote.run(Do(function, args), messages.append, timeout=timeout)
    assert ending.clean, ending
    ((kind, value),) = messages
    assert kind == "result"
    return value


def a_list() -> list[int]:
    return [os.getpid()]


def grow(prepared: list[int], number: int) -> list[int]:
    prepared.append(number)
    return [*prepared, os.getppid()]


def test_children_get_what_is_ready_and_share_nothing() -> None:
    with Zygote(Ready(a_list)) as zygote:
        first, second = (results(zygote, grow, number) for number in (1, 2))
    pid = first[0]
    assert (first, second) == ([pid, 1, pid], [pid, 2, pid])
    assert not is_running(pid)


def test_environment_is_that_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "kept")
    monkeypatch.setenv("GONE", "gone")
    with Zygote(Ready(sets_a_variable)) as zygote:
        monkeypatch.delenv("GONE")
        monkeypatch.setenv("NEW", "new")
        assert results(zygote, environment) == ["kept", None, "new", "of the zygote"]


def sets_a_variable() -> None:
    os.environ["OF_THE_ZYGOTE"] = "of the zygote"


def environment(prepared: None) -> list[str | None]:
    return [os.environ.get(name) for name in ("KEPT", "GONE", "NEW", "OF_THE_ZYGOTE")]


def raises() -> None:
    print("out of the template")
    raise LookupError("not ready")


def exits() -> None:
    os._exit(3)


def hangs() -> None:
    time.sleep(60)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (Ready(raises), "could not get ready:\nTraceback(.*\n)*LookupError: not ready\n(.*\n)*out of the template"),
        (Ready(exits), "ended with exit status 3 before it was ready"),
        (Refuses(), "could not get ready:\nno tests here\n--- its stdout ---\ntried hard"),
        (Ready(hangs), "was not ready after 1 s\n--- its stderr ---\n(.*\n)*.* in hangs\n"),
    ],
)
def test_one_that_cannot_start_says_why(template: Any, told: str) -> None:
    with pytest.raises(ZygoteError, match=f"^the process that was to run it {told}"):
        Zygote(template, start_timeout=1 if "1 s" in told else 30)


def kill_parent(prepared: Any) -> None:
    print("last words", flush=True)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def test_one_that_dies_is_told_and_takes_all_along() -> None:
    with Zygote() as zygote:
        ending = zygote.run(Do(kill_parent), print, timeout=30)
        assert not ending.clean
        assert ending.describe().startswith("is lost, because the process that watched it died of SIGKILL, after")
        assert ending.stdout == "last words\n"
        assert not zygote.is_alive()
    session = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "import time; time.sleep(60)" not in session


def stop_parent(prepared: Any) -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(60)


def test_one_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("conversation", "zygote"):
        monkeypatch.setattr(f"pytest_tensorizer.process.{name}.SECONDS_TO_OBEY", 0.5)
    zygote = Zygote()
    ending = zygote.run(Do(stop_parent), print, timeout=0.5)
    assert ending.lost == "the process that watched it did not answer"
    assert not zygote.is_alive()


def leaves_daemons(prepared: Any, pids: str) -> None:
    daemon = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(60)"
    with open(pids, "w") as file:
        subprocess.Popen([sys.executable, "-c", daemon], stdout=file)
    while not Path(pids).read_text().endswith("\n"):
        time.sleep(0.01)


@pytest.mark.parametrize("template", [None, Ready(a_list)])
def test_daemons_do_not_outlive_the_child(template: Any, tmp_path: Path) -> None:
    with Zygote(template) as zygote:
        results(zygote, leaves_daemons, str(tmp_path / "pids"))
        assert still_running([int((tmp_path / "pids").read_text())], seconds=0) == []


def starts_a_server() -> int:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid


def the_server(prepared: int) -> tuple[int, bool]:
    return prepared, is_running(prepared)


def test_what_the_zygote_has_started_lives_as_long_as_it() -> None:
    with Zygote(Ready(starts_a_server)) as zygote:
        results(zygote, the_server)
        pid, running = results(zygote, the_server)
        assert running
    assert not is_running(pid)


def test_a_fork_of_the_owner_may_not_end_it() -> None:
    with Zygote(Ready(a_list)) as zygote:
        pid = os.fork()
        if pid == 0:
            zygote.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert results(zygote, grow, 1)[1] == 1


def registers() -> tempfile.TemporaryDirectory[str]:
    atexit.register(print, "exit handler of the zygote")
    return tempfile.TemporaryDirectory()


def registers_more(prepared: tempfile.TemporaryDirectory[str], file: str) -> bool:
    atexit.register(Path(file).write_text, "exit handler of the child")
    globals()["kept"] = tempfile.TemporaryDirectory()
    Path(file + ".name").write_text(globals()["kept"].name)
    return Path(prepared.name).is_dir()


def test_exit_handlers_are_those_of_the_child(tmp_path: Path) -> None:
    with Zygote(Ready(registers)) as zygote:
        for number in range(2):
            file = tmp_path / str(number)
            messages: list[Any] = []
            ending = zygote.run(Do(registers_more, (str(file),)), messages.append, timeout=30)
            assert ending.stdout == ""
            assert messages == [("result", True)], "the directory of the zygote is still there"
            assert file.read_text() == "exit handler of the child"
            assert not Path((tmp_path / f"{number}.name").read_text()).exists(), "that of the child is not"


def threads_on() -> Any:
    import torch

    return torch.rand(300, 300) @ torch.rand(300, 300)  # libgomp makes its pool of threads, if it may


def number_of_threads(prepared: Any) -> int:
    import torch

    return torch.get_num_threads()


def multiply(prepared: Any) -> int:
    import torch

    assert (prepared @ prepared).shape == (300, 300)
    return torch.get_num_threads()


def test_a_matrix_product_in_the_zygote_hangs_no_child() -> None:
    with Zygote() as fresh, Zygote(Ready(threads_on)) as zygote:
        number = results(fresh, number_of_threads)
        assert [results(zygote, multiply) for _ in range(3)] == [number] * 3


def claims_cuda() -> None:
    import torch

    torch.cuda._is_in_bad_fork = lambda: True


def test_an_accelerator_of_the_zygote_is_told() -> None:
    with Zygote(Ready(claims_cuda)) as zygote:
        with pytest.raises(UnfitError):
            zygote.run(Do(grow, (1,)), print, timeout=30)
        assert not zygote.is_alive()


def says_much(prepared: Any) -> bytes:
    return b"x" * (8 << 20)


def test_messages_may_be_bigger_than_a_pipe() -> None:
    with Zygote(Ready(a_list)) as zygote:
        assert len(results(zygote, says_much)) == 8 << 20
        assert len(results(zygote, returns, b"y" * (8 << 20))) == 8 << 20


def returns(prepared: Any, value: Any) -> Any:
    return value


def half_a_message(prepared: Any) -> None:
    fd = max(int(name) for name in os.listdir("/proc/self/fd") if _is_pipe(name))
    os.write(fd, b"\xff\0\0\0\0\0\0\0half")
    os._exit(0)


def _is_pipe(name: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{name}").startswith("pipe:")
    except OSError:
        return False


def test_half_a_message_is_no_message() -> None:
    messages: list[Any] = []
    with Zygote(Ready(a_list)) as zygote:
        ending = zygote.run(Do(half_a_message), messages.append, timeout=30)
        assert (messages, ending.clean, ending.returncode) == ([], False, 0)
        assert results(zygote, grow, 1)[1] == 1, "the next child has a pipe of its own"


def test_threads_each_have_one(tmp_path: Path) -> None:
    from pytest_tensorizer.process import run_isolated

    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(run_isolated(os.getppid))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert run_isolated(os.getppid) in found


def test_more_files_than_select_can_watch() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("this process may not open 2,000 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert wait([], 0) == set()
        with Zygote(Ready(a_list)) as zygote:
            assert results(zygote, grow, 1)[1] == 1
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
