"""What goes wrong in a clean process is told, and never as a success."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.process.scenario import Run, junit, run_pytest, still_running, write

needs_subtests = pytest.mark.skipif(not hasattr(pytest, "Subtests"), reason="pytest has subtests since 9.0")

HOSTILE = """
    import atexit, ctypes, faulthandler, os, signal, subprocess, sys, threading, time, warnings
    import pytest

    pytestmark = pytest.mark.fresh_process(timeout=30)
    IN_CHILD = os.getpid() != int(os.environ["MAIN_PID"])

    def test_is_elsewhere():
        assert IN_CHILD
        assert os.environ["FROM_HOOK"] == "test_is_elsewhere" and os.environ["PATH"]

    def test_is_alone():
        with pytest.raises(ChildProcessError):
            os.wait()

    @pytest.fixture(scope="session")
    def counted(tmp_path_factory):
        return [0]

    def test_session_fixture_1(counted):
        counted[0] += 1
        assert counted == [1]

    def test_session_fixture_2(counted):
        counted[0] += 1
        assert counted == [1]

    def test_segv():
        print("printed before")
        print("said before", file=sys.stderr)
        faulthandler._sigsegv()

    def test_null():
        ctypes.string_at(0)

    @pytest.fixture
    def dies_in_setup():
        os.kill(os.getpid(), signal.SIGKILL)

    def test_dies_in_setup(dies_in_setup):
        pass

    @pytest.fixture
    def dies_in_teardown():
        yield
        os.abort()

    def test_dies_in_teardown(dies_in_teardown):
        pass

    def test_fails_then_dies_in_teardown(dies_in_teardown):
        assert 0, "the failure"

    def test_exit_0():
        os._exit(0)

    def test_exit_3():
        os._exit(3)

    @pytest.fixture
    def exits_in_teardown():
        yield
        os._exit(0)

    def test_exit_0_in_teardown(exits_in_teardown):
        pass

    def test_dies_at_exit():
        atexit.register(os._exit, 5)

    @pytest.fixture
    def fails_in_teardown():
        yield
        assert 0, "the teardown"

    def test_fails_in_teardown_and_dies_at_exit(fails_in_teardown):
        atexit.register(os._exit, 5)

    @pytest.mark.fresh_process(timeout=4)
    def test_hangs():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        with open("pids", "w") as file:
            print(os.getpid(), os.getppid(), child.pid, file=file)
        threading.Thread(target=time.sleep, args=(60,)).start()
        print("about to hang")
        wait_for_ever()

    def wait_for_ever():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
        time.sleep(60)

    @pytest.mark.fresh_process(timeout=1.5)
    def test_never_stops_talking(subtests):
        while True:
            with subtests.test():
                pass

    @pytest.mark.fresh_process(memory_limit="200MiB")
    def test_memory():
        bytearray(1 << 30)

    @pytest.mark.fresh_process(memory_limit="200MiB")
    def test_memory_is_enough():
        bytearray(50 << 20)

    @pytest.mark.fresh_process(memory_limit="64MiB")
    def test_memory_is_for_the_test_alone():
        for _ in range(8):
            print("x" * (5 << 20))
        assert 0, "of the test"

    @pytest.mark.fresh_process(memory=1)
    def test_unknown_argument():
        pass

    @pytest.mark.fresh_process(60)
    def test_positional_argument():
        pass

    @pytest.mark.fresh_process(method="fork")
    def test_bad_method():
        pass

    @pytest.mark.fresh_process(memory_limit="4G")
    def test_bad_size():
        pass

    @pytest.mark.fresh_process(timeout=0)
    def test_bad_timeout():
        pass

    @pytest.mark.parametrize("pid", [os.getpid()], ids=["of-the-child" if IN_CHILD else "of-the-parent"])
    def test_unresolved(pid):
        pass

    if not IN_CHILD:
        def test_only_in_parent():
            pass

    @pytest.mark.skipif(not IN_CHILD, reason="decided where it runs")
    def test_condition_in_child():
        pass

    @pytest.mark.xfail(reason="it crashes")
    def test_expected_crash():
        os.abort()

    @pytest.mark.xfail(reason="it does not crash so", raises=ZeroDivisionError)
    def test_other_crash_than_expected():
        os.abort()

    @pytest.mark.xfail(reason="it crashes")
    def test_expected_crash_in_setup(dies_in_setup):
        pass

    def test_subtest_then_crash(subtests):
        with subtests.test("good"):
            pass
        os._exit(0)

    def test_fork_comes_back():
        if os.fork():
            os.wait()
            assert 0, "of the parent"

    def test_closes_streams():
        print("last words")
        sys.stdout.flush()
        os.close(1)
        os.close(2)
        sys.stdout.close()

    def test_closes_everything():
        os.closerange(3, 100)

    def test_hook_raises():
        pass

    def test_hook_skips():
        pass

    def test_leaves_a_thread():
        threading.Thread(target=time.sleep, args=(0.2,)).start()
        print("\\ud800".encode("utf-8", "surrogatepass"))

    def test_warning_of_a_module_of_its_own():
        class Odd(UserWarning):
            pass
        Odd.__module__ = "only_there"
        Odd.__qualname__ = "Odd"
        warnings.warn(Odd("odd"))

    class TestMerged:
        pytestmark = pytest.mark.fresh_process(timeout=0)

        @pytest.mark.fresh_process(timeout=None)
        def test_closest_wins(self):
            pass

        def test_class_counts(self):
            pass
"""

CONFTEST = """
    if os.environ["WAY"] == "elsewhere" and hasattr(os, "pidfd_open"):
        del os.pidfd_open

    def pytest_collection_modifyitems(items):
        if os.environ["WAY"] == "spawn":
            for item in items:
                item.add_marker(pytest.mark.fresh_process(method="spawn"))

    def pytest_tensorizer_child_environment(item):
        if item.name == "test_hook_raises":
            raise LookupError("from the hook")
        if item.name == "test_hook_skips":
            pytest.skip("no server")
        return {"FROM_HOOK": item.name}
"""

BROKEN = """
    import os
    import pytest

    if os.getpid() != int(os.environ["MAIN_PID"]):
        raise ImportError("only in the child")

    @pytest.mark.fresh_process
    def test_uncollected():
        pass
"""


WAYS = ["zygote", "spawn", "elsewhere"]
"""Forked from a zygote, in a fresh interpreter, and in one on a system that is not Linux."""


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, way: str) -> Path:
    return write(tmp_path_factory.mktemp(way), conftest=CONFTEST, test_hostile=HOSTILE, test_broken=BROKEN)


@pytest.fixture(scope="module")
def hostile(directory: Path, way: str) -> Run:
    return run_pytest(directory, "-n2", "--junitxml=junit.xml", "-o", "junit_logging=all", "--strict-markers", WAY=way)


@pytest.mark.parametrize(
    "name",
    """test_is_elsewhere test_is_alone test_session_fixture_1 test_session_fixture_2 test_memory_is_enough
    test_condition_in_child test_closes_streams test_leaves_a_thread test_warning_of_a_module_of_its_own
    test_closest_wins""".split(),
)
def test_passes(hostile: Run, name: str) -> None:
    assert hostile.outcomes(name) == {"setup": "passed", "call": "passed", "teardown": "passed"}


AFTER = r" after \d+\.\d\d s \(peak \d+ MiB\) during "
NOT_DONE = "before it had said that it was done"
TOLD = {
    # name: (the phase that fails, what its text begins with)
    "test_segv": ("call", f"the clean process died of SIGSEGV{AFTER}call"),
    "test_null": ("call", f"the clean process died of SIGSEGV{AFTER}call"),
    "test_dies_in_setup": ("setup", f"the clean process died of SIGKILL{AFTER}setup"),
    "test_dies_in_teardown": ("teardown", f"the clean process died of SIGABRT{AFTER}teardown"),
    "test_exit_0": ("call", f"the clean process ended with exit status 0 {NOT_DONE}{AFTER}call"),
    "test_exit_3": ("call", f"the clean process ended with exit status 3 {NOT_DONE}{AFTER}call"),
    "test_exit_0_in_teardown": ("teardown", f"the clean process ended with exit status 0 {NOT_DONE}{AFTER}teardown"),
    "test_dies_at_exit": ("teardown", f"the clean process ended with exit status 5{AFTER}teardown"),
    "test_fails_in_teardown_and_dies_at_exit": (
        "teardown",
        f"the clean process ended with exit status 5{AFTER}teardown",
    ),
    "test_hangs": ("call", f"the clean process did not end in time and was killed{AFTER}call. The limit was 4 s."),
    "test_memory_is_for_the_test_alone": ("call", "(.*\n)*E +AssertionError: of the test\n"),
    "test_unknown_argument": ("setup", ".* has no argument 'memory': it takes timeout, memory_limit and method"),
    "test_positional_argument": ("setup", r".* takes keyword arguments only, not \(60,\)"),
    "test_bad_method": ("setup", ".* method='fork' is not known: use 'zygote' or 'spawn'"),
    "test_bad_size": ("setup", ".* '4G' is no memory size: write"),
    "test_bad_timeout": ("setup", ".* 0 is no timeout: write"),
    "test_class_counts": ("setup", ".*TestMerged::test_class_counts: 0 is no timeout: write"),
    "test_unresolved[of-the-parent]": (
        "setup",
        r"0 tests of this id were collected in the clean process, which has .*test_unresolved\[of-the-child\]",
    ),
    "test_only_in_parent": (
        "setup",
        "0 tests of this id were collected in the clean process, which has |"
        "uncollected in the clean process:\npytest refuses to collect; its message stands on stderr\n",
    ),
    "test_uncollected": ("setup", "uncollected in the clean process:\n(.*\n)*.*ImportError: only in the child"),
    "test_other_crash_than_expected": ("call", f"the clean process died of SIGABRT{AFTER}call"),
    "test_expected_crash_in_setup": ("setup", f"the clean process died of SIGKILL{AFTER}setup"),
    "test_hook_raises": ("setup", "(.*\n)*.*LookupError: from the hook"),
}


@pytest.mark.parametrize("name", TOLD)
def test_failure_is_told(hostile: Run, name: str) -> None:
    phase, text = TOLD[name]
    outcomes = hostile.outcomes(name)
    assert outcomes.pop(phase) == "failed"
    assert set(outcomes.values()) <= {"passed"}
    assert list(hostile.outcomes(name))[-1] == "teardown", "plugins finish a test with its teardown"
    assert re.match(text, hostile.failure(name)), hostile.failure(name)


def test_every_test_is_accounted_for(directory: Path, hostile: Run) -> None:
    assert hostile.returncode == 1
    assert "INTERNALERROR" not in hostile.text
    names = {report["nodeid"].rpartition("::")[2] for report in hostile.records if "outcome" in report}
    assert len(names) == len(re.findall(r"\bdef test_", HOSTILE + BROKEN))
    written = [name for _, name, _ in junit(directory / "junit.xml")]
    # A call that failed and a teardown that did too are two entries with pytest alone.
    assert sorted(set(written)) == sorted(names)
    assert sorted(written) == sorted([*names, "test_fails_then_dies_in_teardown"])


def test_crash_has_stack_and_output(hostile: Run) -> None:
    text = hostile.failure("test_segv")
    assert "--- Captured stdout call ---\nprinted before\n" in text
    assert "--- Captured stderr call ---\nsaid before\n" in text
    assert "Fatal Python error: Segmentation fault" in text
    assert re.search(r'test_hostile.py", line \d+ in test_segv\n', text)
    (call,) = [report for report in hostile.reports("test_segv") if report["when"] == "call"]
    assert 0 < call["duration"] < 30


def test_output_of_a_crash_is_in_junit(directory: Path, hostile: Run) -> None:
    (inside,) = [inside for _, name, inside in junit(directory / "junit.xml") if name == "test_segv"]
    assert any("printed before" in tag for tag in inside if tag.startswith("<system-out"))


def test_both_failures_are_told(hostile: Run) -> None:
    assert hostile.outcomes("test_fails_then_dies_in_teardown") == {
        "setup": "passed", "call": "failed", "teardown": "failed"
    }  # fmt: skip
    _, call, teardown = hostile.reports("test_fails_then_dies_in_teardown")
    assert "AssertionError: the failure" in call["text"]
    assert "died of SIGABRT" in teardown["text"]
    assert "AssertionError: the teardown" in hostile.failure("test_fails_in_teardown_and_dies_at_exit")


def test_timeout_has_stacks_and_leaves_nothing(directory: Path, hostile: Run) -> None:
    text = hostile.failure("test_hangs")
    assert "about to hang" in text
    assert " in wait_for_ever\n" in text
    assert "threading.py" in text, "the stack of the other thread"
    pids = [int(pid) for pid in (directory / "pids").read_text().split()]
    assert len(pids) == 3
    assert still_running(pids) == []


@needs_subtests
def test_timeout_comes_though_messages_keep_coming(hostile: Run) -> None:
    assert "did not end in time" in hostile.failure("test_never_stops_talking")


def test_memory_limit_is_an_ordinary_failure(hostile: Run) -> None:
    assert hostile.outcomes("test_memory") == {"setup": "passed", "call": "failed", "teardown": "passed"}
    text = hostile.failure("test_memory")
    assert re.search(r"bytearray\(1 << 30\)\nE +MemoryError", text)
    assert "--- memory_limit ---\nthe test may allocate 200 MiB (memory_limit)" in text


def test_expected_crash(hostile: Run) -> None:
    assert hostile.outcomes("test_expected_crash")["call"] == "skipped"
    assert hostile.reports("test_expected_crash")[1]["xfail"] == "it crashes"


@needs_subtests
def test_subtest_is_no_call(hostile: Run) -> None:
    assert "ended with exit status 0" in hostile.failure("test_subtest_then_crash")
    assert "during call" in hostile.failure("test_subtest_then_crash")


def test_fork_of_a_test_has_no_say(hostile: Run) -> None:
    assert hostile.outcomes("test_fork_comes_back")["call"] == "failed"
    assert "of the parent" in hostile.failure("test_fork_comes_back")


def test_closed_pipe_is_no_success(hostile: Run) -> None:
    assert "failed" in hostile.outcomes("test_closes_everything").values()


def test_hook_may_skip(hostile: Run) -> None:
    assert hostile.outcomes("test_hook_skips") == {"setup": "skipped", "teardown": "passed"}


def test_last_words(hostile: Run) -> None:
    (_, call, _) = hostile.reports("test_closes_streams")
    assert call["sections"] == [["Captured stdout call", "last words\n"]]


def test_warning_that_is_unknown_here(hostile: Run) -> None:
    (warning,) = [record for record in hostile.records if record.get("warning", "").startswith("only_there")]
    assert (warning["warning"], warning["category"]) == ("only_there.Odd: odd", "UserWarning")


def test_tests_in_this_process_and_elsewhere_mix(tmp_path: Path) -> None:
    """What a test in this process has set up for its module is torn down in time, whoever comes after it."""
    first = """
        import pytest

        @pytest.fixture(scope="module")
        def resource():
            print("set up")
            yield
            raise RuntimeError("teardown of the module, told once")

        def test_here(resource): ...

        @pytest.mark.fresh_process
        def test_elsewhere(): ...

        def test_here_again(resource): ...

        @pytest.mark.fresh_process
        def test_last_elsewhere(): ...
    """
    second = """
        def test_other_module(): ...
    """
    run = run_pytest(write(tmp_path, test_first=first, test_second=second))
    outcomes = {(r["nodeid"].rpartition("::")[2], r["when"]): r["outcome"] for r in run.records if "when" in r}
    calls = {name: outcome for (name, when), outcome in outcomes.items() if when == "call"}
    assert calls == dict.fromkeys(["test_here", "test_elsewhere", "test_here_again", "test_other_module"], "passed")
    assert outcomes["test_last_elsewhere", "setup"] == "failed"
    failures = [r for r in run.records if r.get("outcome") == "failed"]
    assert len(failures) == 1
    assert "teardown of the module, told once" in failures[0]["text"]
