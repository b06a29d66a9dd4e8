"""The marker with the options, directories and ends of a run of pytest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.process.scenario import command, environment, run_pytest, still_running, wait_for, write

THREE = """
    import os, warnings
    import pytest

    pytestmark = pytest.mark.fresh_process
    IN_CHILD = os.getpid() != int(os.environ["MAIN_PID"])

    def note(name):
        with open(os.environ["RAN"], "a") as file:
            file.write(name + " ")

    def test_one(tmp_path):
        print("out of one")
        assert IN_CHILD
        note("one")

    def test_two(tmp_path):
        note("two")
        assert os.environ.get("FIXED")

    def test_three(tmp_path):
        note("three")
        warnings.warn("careful")
"""


class Three:
    """Three tests, of which the second fails and the third warns."""

    def __init__(self, directory: Path) -> None:
        self.directory = write(directory, test_it=THREE)

    def __call__(self, *args: str, **variables: str) -> str:
        """Which tests did what: "one:passed two:failed …", and the names of those that ran, as they saw it."""
        ran = self.directory / "ran"
        ran.write_text("")
        self.run = run_pytest(self.directory, *args, RAN=str(ran), **variables)
        self.ran = ran.read_text().split()
        calls = [report for report in self.run.records if report.get("when") == "call"]
        return " ".join(f"{r['nodeid'].rpartition('_')[2]}:{r['outcome']}" for r in calls)


@pytest.fixture
def three(tmp_path: Path) -> Three:
    return Three(tmp_path / "three")


@pytest.mark.parametrize(
    ("args", "outcomes"),
    [
        (["-x"], "one:passed two:failed"),
        (["--maxfail=1", "--import-mode=importlib"], "one:passed two:failed"),
        (["-k", "one or three", "-W", "error"], "one:passed three:failed"),
        (["-k", "three", "-W", "ignore"], "three:passed"),
        (["--deselect=test_it.py::test_two", "--rootdir=.", "-c", "/dev/null"], "one:passed three:passed"),
        (["test_it.py::test_one", "-n1", "--dist=loadgroup", "-p", "no:faulthandler"], "one:passed"),
        (["-k", "one", "--strict-markers", "--", "test_it.py"], "one:passed"),
        (["--pyargs", "test_it", "-k", "one"], "one:passed"),
        (["-k", "one", "-p", "no:junitxml", "-p", "no:logging", "-p", "no:subtests"], "one:passed"),
        (["-k", "one", "-p", "no:tmpdir", "-p", "no:terminal"], None),
    ],
)
def test_options(three: Three, args: list[str], outcomes: str | None) -> None:
    if outcomes is None:
        assert three(*args) in ("", "one:failed")  # without tmpdir there is no tmp_path; but no success either
        return
    assert three(*args) == outcomes, three.run.text
    assert [f"{name}:{'failed' if name == 'two' else 'passed'}" for name in three.ran] == [
        o if "three" not in o else "three:passed" for o in outcomes.split()
    ]
    assert three.run.returncode == (1 if "failed" in outcomes else 0)


def test_last_failed_and_stepwise(three: Three) -> None:
    def again(*args: str, **variables: str) -> str:
        ran = three.directory / "ran"
        ran.write_text("")
        run = run_pytest(three.directory, *args, cache=True, RAN=str(ran), **variables)
        assert run.returncode in (0, 1, 2), run.text
        return ran.read_text()

    assert again() == "one two three "
    assert again("--lf") == "two "
    assert again("--lf", FIXED="1") == "two "
    assert again("--sw") == "one two "
    assert again("--sw", FIXED="1") == "two three "


def test_without_capture_output_is_live(three: Three) -> None:
    assert three("-s", "-k", "one") == "one:passed"
    assert "out of one\n" in three.run.text
    assert three.run.text.count("test session starts") == 1
    assert all(report["sections"] == [] for report in three.run.reports("test_one"))


@pytest.mark.parametrize("option", ["--pdb", "--trace", "--setup-show"])
def test_what_needs_the_terminal_turns_isolation_off(three: Three, option: str) -> None:
    hook = """
def pytest_report_collectionfinish(config, items):
    from pytest_tensorizer.process import marker
    return ["told: " + line for line in marker.isolation_is_off(config, items)]
"""
    (three.directory / "conftest.py").write_text((three.directory / "conftest.py").read_text() + hook)
    three(option, "-k", "one", "-s")
    told = f"told: fresh_process: {option} turns isolation off, 1 marked test(s) run in this process"
    assert told in three.run.text
    assert ("SETUP    F tmp_path" if option == "--setup-show" else "(Pdb)") in three.run.text
    three("-k", "one")
    assert "told:" not in three.run.text


def test_basetemp_belongs_to_the_parent(tmp_path: Path) -> None:
    tests = """
        import pytest

        def test_before(tmp_path_factory):
            tmp_path_factory.mktemp("kept").joinpath("file").write_text("kept")

        @pytest.mark.fresh_process
        @pytest.mark.parametrize("n", [1, 2])
        def test_isolated(tmp_path, tmp_path_factory, n):
            tmp_path.joinpath("mine").write_text("")
            assert tmp_path_factory.getbasetemp().parent.joinpath("kept0", "file").read_text() == "kept"

        def test_after(tmp_path_factory):
            base = tmp_path_factory.getbasetemp()
            assert (base / "kept0" / "file").read_text() == "kept"
            assert len(list(base.glob("clean-*/*0/mine"))) == 2
    """
    directory = write(tmp_path / "tests", test_it=tests)
    run = run_pytest(directory, f"--basetemp={tmp_path / 'base'}", "-q")
    assert run.returncode == 0, run.text


ROOT = """
    import pytest

    @pytest.fixture
    def overridden():
        return "root"

    def pytest_sessionstart(session):
        session.config.addinivalue_line("markers", "mine: known to the root conftest")

    @pytest.fixture(autouse=True)
    def of_root(monkeypatch):
        monkeypatch.setenv("OF_ROOT", "1")
"""

DEEP = """
    import os
    from pathlib import Path
    import pytest

    @pytest.mark.mine
    @pytest.mark.fresh_process
    def test_deep(overridden, request):
        assert (overridden, os.environ["OF_ROOT"]) == ("root", "1")
        assert str(Path.cwd()) == os.environ["CWD"]
        assert str(request.config.rootpath) == os.environ["ROOT"]
        assert request.config.getini("tensorizer_device") == os.environ["INI"]
        open(os.environ["RAN"], "a").write("deep")
"""


@pytest.mark.parametrize(
    ("cwd", "args", "root", "ini"),
    [
        (".", [], ".", "cpu"),
        ("deep/er", [], ".", "cpu"),
        ("deep", ["er/test_deep.py"], ".", "cpu"),
        ("..", ["root/deep"], ".", "cpu"),
        ("other", ["--rootdir=..", "../deep"], ".", "cpu"),
        ("deep", ["-c", "../other/pytest.ini", "er", "--confcutdir=.."], "other", "cuda"),
        (".", ["--rootdir=other", "deep/er/test_deep.py::test_deep"], "other", "cpu"),
        (".", ["--rootdir=other", "deep", "-n1"], "other", "cpu"),
    ],
)
def test_root_conftest_is_honoured(tmp_path: Path, cwd: str, args: list[str], root: str, ini: str) -> None:
    top = write(tmp_path / "root", conftest=ROOT)
    (top / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\ntensorizer_device = cpu\n")
    write(top / "deep" / "er", test_deep=DEEP)
    (top / "deep" / "er" / "conftest.py").unlink()
    (top / "other").mkdir()
    (top / "other" / "pytest.ini").write_text("[pytest]\ntensorizer_device = cuda\n")
    cwd, root = str((top / cwd).resolve()), str((top / root).resolve())
    run = run_pytest(top, *args, cwd=Path(cwd), CWD=cwd, ROOT=root, INI=ini, RAN=str(top / "ran"))
    assert run.returncode == 0, run.text
    assert (top / "ran").read_text() == "deep"
    assert run.outcomes("test_deep") == {"setup": "passed", "call": "passed", "teardown": "passed"}


def test_child_that_ends_before_it_has_begun(tmp_path: Path) -> None:
    conftest = """
        if os.environ.get("MAIN_PID"):
            os._exit(0)
    """
    tests = "import pytest\n\n@pytest.mark.fresh_process\ndef test_it(): pass\n"
    run = run_pytest(write(tmp_path / "tests", conftest=conftest, test_it=tests))
    assert run.returncode == 1
    assert "the process that was to run it ended with exit status 0 before it was ready" in run.failure("test_it")


def test_skipping_everything_else_is_no_success(tmp_path: Path) -> None:
    """A child whose plugins run no phase, or another test, has proved nothing."""
    conftest = """
        def pytest_runtest_protocol(item):
            if hasattr(item.config, "workerinput"):
                return True
    """
    tests = "import pytest\n\n@pytest.mark.fresh_process\ndef test_it(): pass\n"
    run = run_pytest(write(tmp_path / "tests", conftest=conftest, test_it=tests))
    assert run.returncode == 1
    assert "ended with exit status 0 after" in run.failure("test_it")


HANGS = """
    import os, subprocess, sys, time
    import pytest

    @pytest.mark.fresh_process(timeout=None)
    def test_hangs():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
        with open("pids", "w") as file:
            print(os.getpid(), os.getppid(), child.pid, file=file)
        time.sleep(120)
"""


@pytest.mark.parametrize(
    ("number", "args"), [(signal.SIGINT, []), (signal.SIGTERM, []), (signal.SIGKILL, []), (signal.SIGINT, ["-n1"])]
)
def test_nothing_outlives_the_parent(tmp_path: Path, number: signal.Signals, args: list[str]) -> None:
    directory = write(tmp_path / "tests", test_it=HANGS)
    process = subprocess.Popen(
        command(*args),
        cwd=directory,
        env=environment(directory),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        # A shell starts what it puts into the background deaf to Ctrl-C, and its children with it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    pids: list[int] = []
    try:
        pids = [int(pid) for pid in wait_for(directory / "pids").split()]
        time.sleep(0.1)
        os.killpg(process.pid, number)  # as a terminal does: the workers of xdist are of the group, ours is not
        output, _ = process.communicate(timeout=20)
        assert still_running(pids) == []
        if number == signal.SIGINT and not args:
            assert process.returncode == pytest.ExitCode.INTERRUPTED, output
            assert "KeyboardInterrupt" in output
    finally:
        process.kill()
        process.wait()


def test_interpreter_is_the_same(tmp_path: Path) -> None:
    tests = """
        import os, sys
        import pytest

        @pytest.mark.fresh_process
        def test_it():
            assert sys.executable == os.environ["PYTHON"]
            assert sys.flags.dev_mode
            assert sys.path[-1] == os.environ["LAST"]
    """
    conftest = """
        import sys
        if os.environ["LAST"] not in sys.path:
            sys.path.append(os.environ["LAST"])
    """
    directory = write(tmp_path / "tests", conftest=conftest, test_it=tests)
    done = subprocess.run(
        [sys.executable, "-X", "dev", *command()[1:], "-q"],
        cwd=directory,
        env=environment(directory, PYTHON=sys.executable, LAST=str(tmp_path / "last")),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
