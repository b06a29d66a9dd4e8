"""Whoever touches an accelerator during collection is named: file, line and how it came to that."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from pytest_tensorizer import accelerator_guard
from pytest_tensorizer.accelerator_guard import AcceleratorGuard
from tests.process.scenario import Run, environment, run_pytest, write

INNOCENT = """
    import os
    import torch

    # Torch's own code lies below torch, and that of the recorders does not.
    WATCHED = "torch" not in torch.cuda.is_available.__code__.co_filename.split(os.sep)

    def test_that_asks():
        assert torch.cuda.is_available() in (True, False)
        for function in (torch.cuda._lazy_init, torch.cuda.is_available, torch.cuda.device_count):
            assert function.__code__.co_filename == torch.cuda.__file__
        assert WATCHED is (os.environ.get("GUARD") != "off")
"""
TOUCHING = {
    "test_question": "import torch\n\nGPU = torch.cuda.is_available()\n",
    "test_alias": "from torch.cuda import device_count\nGPU = device_count()\n",
    "test_lazy": "import torch\ntry:\n    torch.zeros(1).cuda()\nexcept (AssertionError, RuntimeError):\n    pass\n",
    "test_any": "import torch\nif not torch.accelerator.is_available():\n    import pytest\n    pytest.skip('', "
    "allow_module_level=True)\n",
    "test_import": "import os\nimport helper\n",
    "test_broken": "import torch\ntorch.xpu.is_available()\nraise RuntimeError('broken')\n",
    "helper": "import torch\ndef gpu():\n    return torch.cuda.is_available()\nGPU = gpu()\n",
}
INVOLVED = "AcceleratorWarning"
STAND_IN = """
    _initialized = False

    def is_initialized():
        return _initialized

    def is_available():
        return False

    def device_count():
        return 0

    def _lazy_init():
        raise AssertionError("not compiled with CUDA")
"""


def errors(path: Path) -> dict[str, str]:
    """Name -> text of the errors in a junit file."""
    cases = ElementTree.parse(path).iter("testcase")
    return {case.get("name", ""): error.text or "" for case in cases for error in case.iter("error")}


def warned(run: Run) -> list[str]:
    """The "file:line" that the guard warned of."""
    return [f"{r['file']}:{r['line']}" for r in run.records if r.get("category") == INVOLVED]


def line(path: Path, text: str) -> str:
    """ "file:line" of the line that `text` is."""
    return f"{path.name}:{path.read_text().splitlines().index(text) + 1}"


def python_path(*directories: Path) -> str:
    return os.pathsep.join([*map(str, directories), os.environ.get("PYTHONPATH", "")])


def distribution(directory: Path, name: str, group: str, target: str) -> None:
    """Installs the entry point `target` in `directory`."""
    info = directory / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which `torch` is a package that takes no seconds to import."""
    site = tmp_path_factory.mktemp("quick")
    write(site / "torch", __init__="from torch import cuda, version\n", cuda=STAND_IN, version="cuda = None\n")
    (site / "torch" / "conftest.py").unlink()
    return {"PYTHONPATH": python_path(site)}


@pytest.fixture(scope="module")
def touching(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("touching"), test_innocent=INNOCENT, **TOUCHING)


@pytest.fixture(scope="module")
def failed(touching: Path) -> Run:
    return run_pytest(touching, "--accelerator-guard=error", "--junitxml=junit.xml", "--continue-on-collection-errors")


@pytest.mark.parametrize(
    ("name", "event", "chain"),
    [
        ("test_question", "torch.cuda.is_available()", ["test_question.py:3"]),
        ("test_alias", "torch.cuda.device_count()", ["test_alias.py:2"]),
        ("test_lazy", "torch.cuda._lazy_init()", ["test_lazy.py:3"]),
        ("test_any", "torch.accelerator.is_available()", ["test_any.py:2"]),
        ("test_import", "torch.cuda.is_available()", ["test_import.py:2", "helper.py:4", "helper.py:3"]),
    ],
)
def test_modules(failed: Run, touching: Path, name: str, event: str, chain: list[str]) -> None:
    story = f"{event} was called at {chain[-1]}, while collecting {name}.py:\n    " + "\n    -> ".join(chain)
    text = errors(touching / "junit.xml")[name]
    assert text.startswith(f"{story}\nA process that has touched"), text
    assert text.count(" was called at ") == 1, text
    for advice in ("fixture", "fresh_process", "PYTORCH_NVML_BASED_CUDA_CHECK=1", "--accelerator-guard=off"):
        assert advice in text
    assert story in failed.text


def test_others_run_untouched(failed: Run, touching: Path) -> None:
    """A test may ask for the GPU, and the functions are torch's own again by then."""
    assert failed.outcomes("test_that_asks") == {"setup": "passed", "call": "passed", "teardown": "passed"}
    assert failed.returncode == pytest.ExitCode.TESTS_FAILED  # as with any error of collection and this option
    assert "1 passed, 6 errors" in failed.text
    assert errors(touching / "junit.xml").keys() == TOUCHING.keys() - {"helper"}


def test_broken_module_says_both(failed: Run, touching: Path) -> None:
    assert "RuntimeError: broken" in errors(touching / "junit.xml")["test_broken"]
    _, section, rest = failed.text.partition("accelerator guard -")
    assert section
    assert "torch.xpu.is_available() was called at test_broken.py:2" in rest


def test_exit_code(touching: Path, quick: dict[str, str]) -> None:
    run = run_pytest(touching, "--accelerator-guard=error", "test_question.py", "--co", "-q", **quick)
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert "ERROR test_question.py" in run.text


@pytest.mark.parametrize("distributed", [[], ["-n2"]])
def test_warn_is_the_default(touching: Path, distributed: list[str]) -> None:
    run = run_pytest(touching, "--ignore=test_broken.py", *distributed)
    assert run.returncode == pytest.ExitCode.OK, run.text
    culprits = ["test_question.py:3", "test_alias.py:2", "test_lazy.py:3", "test_any.py:2", "helper.py:3"]
    assert sorted(warned(run)) == sorted(culprits * (2 if distributed else 1))
    assert "helper.py:4\n      -> helper.py:3\n  A process that has touched" in run.text
    assert run.outcomes("test_that_asks")["call"] == "passed"


def test_one_warning_for_each_culprit(tmp_path: Path, quick: dict[str, str]) -> None:
    write(
        tmp_path, helper="import torch\ndef gpu(): return torch.cuda.is_available()\n",
        test_a="import helper\nhelper.gpu()\nhelper.gpu()\n", test_b="import helper\nhelper.gpu()\n",
    )  # fmt: skip
    assert warned(run_pytest(tmp_path, **quick)) == ["helper.py:2"]
    run = run_pytest(tmp_path, "--accelerator-guard=error", **quick)
    assert [run.text.count(f"ERROR collecting {name}") for name in ("test_a.py", "test_b.py")] == [1, 1]


def test_distributed_error(touching: Path, quick: dict[str, str]) -> None:
    run = run_pytest(
        touching, "-n2", "--accelerator-guard=error", "test_question.py", "test_alias.py", "test_innocent.py", **quick
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert run.text.count("was called at test_question.py:3, while collecting test_question.py") == 1
    assert "1 passed, 2 errors" in run.text


def test_warning_that_is_an_error(touching: Path, quick: dict[str, str]) -> None:
    run = run_pytest(touching, "-W", "error", "test_question.py", "test_import.py", **quick)
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert "INTERNALERROR" not in run.text
    assert "ERROR collecting test_question.py" in run.text
    assert "ERROR collecting test_import.py" in run.text
    assert run.text.count("Decide inside a fixture") == 2


@pytest.mark.parametrize(
    ("arguments", "ini", "outcome"),
    [
        (["--accelerator-guard=off"], "", "nothing"),
        ([], "accelerator_guard = off", "nothing"),
        ([], "accelerator_guard = error", "error"),
        (["--accelerator-guard=warn"], "accelerator_guard = error", "warning"),
        (["--tensorizer-conformance"], "", "error"),
        (["--tensorizer-conformance", "--accelerator-guard=warn"], "", "warning"),
    ],
)
def test_modes(
    touching: Path, quick: dict[str, str], tmp_path: Path, arguments: list[str], ini: str, outcome: str
) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    conformance = "--tensorizer-conformance" in arguments
    suite = ["--tensorizer-format=torch", "--tensorizer-device=cpu"]
    run = run_pytest(
        touching, "-c", str(tmp_path / "pytest.ini"), f"--rootdir={touching}", *suite, *arguments,
        "test_question.py", "test_innocent.py", "-k", "that_asks",
        GUARD="off" if outcome == "nothing" else "", **({} if conformance else quick),
    )  # fmt: skip
    assert ("ERROR collecting test_question.py" in run.text) is (outcome == "error"), run.text
    assert warned(run) == (["test_question.py:3"] if outcome == "warning" else [])
    if outcome != "error":
        assert run.outcomes("test_that_asks")["call"] == "passed", run.text


def test_bad_value(pytester: pytest.Pytester) -> None:
    for arguments, ini in [(["--accelerator-guard=loud"], ""), ([], "accelerator_guard = loud")]:
        pytester.makeini(f"[pytest]\n{ini}")
        result = pytester.runpytest_inprocess(*arguments)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["ERROR: --accelerator-guard *accelerator_guard* 'loud': use error, warn or off"])


def test_forgiven(tmp_path: Path, quick: dict[str, str]) -> None:
    """With torch's own way of leaving the driver alone only what initialises it is told."""
    names = ("test_question", "test_alias", "test_import", "helper", "test_lazy")
    lazy = "import torch\ntry:\n    torch.cuda._lazy_init()\nexcept AssertionError:\n    pass\n"
    write(tmp_path, **{name: TOUCHING[name] for name in names} | {"test_lazy": lazy})
    assert warned(run_pytest(tmp_path, PYTORCH_NVML_BASED_CUDA_CHECK="1", **quick)) == ["test_lazy.py:3"]
    assert len(warned(run_pytest(tmp_path, PYTORCH_NVML_BASED_CUDA_CHECK="0", **quick))) == 4


def test_conftests(tmp_path: Path, quick: dict[str, str]) -> None:
    write(tmp_path, conftest="import torch\ntorch.cuda.is_available()\n")
    write(tmp_path / "below", test_one="def test_one(): pass\n")
    (tmp_path / "below" / "conftest.py").write_text("import torch\ntorch.cuda.device_count()\n")
    # A session that fails collects nothing more: the one below is for the next run.
    run = run_pytest(tmp_path, "--accelerator-guard=error", "--junitxml=junit.xml", **quick)
    root = line(tmp_path / "conftest.py", "torch.cuda.is_available()")
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert f"torch.cuda.is_available() was called at {root}, outside of the test files" in run.text
    assert len(errors(tmp_path / "junit.xml")) == 1
    run = run_pytest(tmp_path, **quick)
    assert warned(run) == [root, "conftest.py:2"]
    assert f"device_count() was called at below{os.sep}conftest.py:2" in run.text
    # The controller of xdist reads the conftest too, and it is told once all the same.
    run = run_pytest(tmp_path, "-n2", "--accelerator-guard=error", **quick)
    assert run.text.count(f"was called at {root}, outside of the test files:") == 1


PLUGIN = """
    import torch
    {now}

    def pytest_configure():
        {configure}
"""


def test_plugins(tmp_path: Path, quick: dict[str, str]) -> None:
    """One that touches in a hook; one that pytest loads after us; one that had been there before us."""
    write(tmp_path, test_one="def test_one(): pass\n")

    def plugin(now: str = "pass", configure: str = "pass") -> None:
        source = textwrap.dedent(PLUGIN).format(now=now, configure=configure)
        (tmp_path / "acme.py").write_text(source)

    path = os.pathsep.join([str(tmp_path), quick["PYTHONPATH"]])
    plugin(configure="torch.cuda.is_available()")
    assert warned(run_pytest(tmp_path, "-p", "acme", PYTHONPATH=path)) == ["acme.py:6"]
    plugin(now="torch.cuda.is_available()")
    assert warned(run_pytest(tmp_path, PYTEST_PLUGINS="acme", PYTHONPATH=path)) == ["acme.py:3"]
    assert warned(run_pytest(tmp_path, "-p", "tensorizer", "-p", "acme", PYTHONPATH=path)) == ["acme.py:3"]
    too_late = "by a plugin that pytest loaded before the accelerator guard.\n`python -X importtime"
    for trace in ("torch.cuda._initialized = True", BUILD.format(spoilt=True)):
        plugin(now=trace)
        run = run_pytest(tmp_path, "-p", "acme", "--accelerator-guard=error", PYTHONPATH=path)
        assert too_late in run.text
        assert run.returncode == pytest.ExitCode.INTERRUPTED
    plugin(now=BUILD.format(spoilt=True), configure="torch.cuda.is_available()")
    assert warned(run_pytest(tmp_path, "-p", "acme", PYTHONPATH=path)) == ["acme.py:6"]
    plugin(now=BUILD.format(spoilt=False))
    assert run_pytest(tmp_path, "-p", "acme", "--accelerator-guard=error", PYTHONPATH=path).returncode == 0


def test_between_collection_and_tests(tmp_path: Path, quick: dict[str, str]) -> None:
    """The hook that marks tests according to the GPU is a hook, too."""
    hook = "def pytest_collection_modifyitems():\n    import torch\n    torch.cuda.device_count()\n"
    write(tmp_path, test_one="def test_one(): pass\n")
    (tmp_path / "conftest.py").write_text(hook)
    for distributed, code in ([], pytest.ExitCode.INTERRUPTED), (["-n1"], pytest.ExitCode.TESTS_FAILED):
        run = run_pytest(tmp_path, "--accelerator-guard=error", *distributed, **quick)
        assert "device_count() was called at conftest.py:3, after the test files had been collected" in run.text
        assert run.returncode == code
    run = run_pytest(tmp_path, **quick)
    assert "conftest.py:3: AcceleratorWarning" in run.text
    assert run.returncode == pytest.ExitCode.OK


def test_entry_point_of_another_package(tmp_path: Path) -> None:
    """Whoever imports hypothesis imports what others have registered with it: the case that this was made for."""
    site = tmp_path / "site"
    distribution(site, "acme", "hypothesis", "acme_probe")
    (site / "acme_probe.py").write_text("import torch\nclass Probe:\n    gpu = torch.cuda.is_available()\n")
    write(tmp_path / "tests", test_it="import os\nfrom hypothesis import given\ndef test_one(): pass\n")
    run = run_pytest(tmp_path / "tests", "--accelerator-guard=error", PYTHONPATH=python_path(site))
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    probe = site / "acme_probe.py"
    story = run.text.partition(f"torch.cuda.is_available() was called at {probe}:3, while collecting test_it.py:\n")[2]
    chain = [place.strip().removeprefix("-> ") for place in story.partition("A process")[0].splitlines()]
    assert chain[0] == "test_it.py:2"
    assert chain[-2:] == [f"{probe}:2", f"{probe}:3"]
    assert len(chain) > 3
    assert all(f"{os.sep}hypothesis{os.sep}" in place for place in chain[1:-2]), chain


BUILD = 'torch.version.cuda = "12.8"; torch.cuda._is_in_bad_fork = lambda: {spoilt}'
ASKING = """
    import os

    def fork():
        FORKS.append(1)
        return FORK()

    FORKS, FORK, os.fork = [], os.fork, fork

    def pytest_collection_finish():
        print("forks:", len(FORKS))
"""


@pytest.mark.parametrize("spoilt", [True, False])
def test_build_with_a_driver(tmp_path: Path, spoilt: bool) -> None:
    """A fork tells whether the question went to the driver; one for each file that asks, till it is known to be so."""
    question = "import torch\ntorch.cuda.is_available()\ntorch.cuda.device_count()\n"
    lazy = "import torch\ntry: torch.cuda._lazy_init()\nexcept (AssertionError, RuntimeError): pass\n"
    build = f"import torch\n{BUILD.format(spoilt=spoilt)}\n"
    write(tmp_path, test_a=question, test_b=question, test_c="", test_d=lazy)
    (tmp_path / "conftest.py").write_text(build + textwrap.dedent(ASKING))
    run = run_pytest(tmp_path, "-s", "-W", "always", "--accelerator-guard=warn")
    named = [f"test_{name}.py:{number}: AcceleratorWarning" in run.text for name in "ab" for number in (2, 3)]
    assert named == [spoilt] * 4, run.text
    assert "test_d.py:2: AcceleratorWarning" in run.text
    assert f"forks: {1 if spoilt else 2}" in run.text


def test_open_device(tmp_path: Path) -> None:
    """What does not go through torch shows by the device that it has opened."""
    device = tmp_path / "device"
    device.touch()
    write(tmp_path, test_a=f"FILE = open({str(device)!r})\n", test_b=f"FILE = open({str(device)!r})\n", test_c="")
    conftest = "from pytest_tensorizer.accelerator_guard import AcceleratorGuard\nAcceleratorGuard.devices = ({!r},)\n"
    (tmp_path / "conftest.py").write_text(conftest.format(str(device)))
    run = run_pytest(tmp_path, "--accelerator-guard=error")
    for name in ("test_a.py", "test_b.py"):
        assert f"{device} was opened, it is not known by whom, while collecting {name}\n" in run.text
    assert "2 errors" in run.text
    assert "AcceleratorWarning" in run_pytest(tmp_path).text


def test_clean_processes_leave_it_to_their_parent(tmp_path: Path) -> None:
    # The module is imported in both: only the parent's recorders may be at work there.
    source = """
        import os
        import pytest, torch

        CODE = torch.cuda.is_available.__code__.co_filename
        torch.cuda.is_available()
        IN_CHILD = os.getpid() != int(os.environ["MAIN_PID"])

        @pytest.mark.fresh_process
        def test_in_child():
            assert IN_CHILD
            assert CODE == torch.cuda.__file__

        def test_in_parent():
            assert not IN_CHILD
            assert CODE != torch.cuda.__file__
    """
    run = run_pytest(write(tmp_path, test_it=source))
    assert run.outcomes("test_in_child")["call"] == "passed", run.text
    assert run.outcomes("test_in_parent")["call"] == "passed", run.text
    assert warned(run) == ["test_it.py:6"]


def test_start_up_imports_no_torch() -> None:
    check = "import pytest_tensorizer.accelerator_guard_pytest, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# The guard without pytest.


def acme_is_available(first: int, second: int = 2, *, third: int = 3) -> tuple[int, int, int]:
    """Stands in for torch's."""
    if first < 0:
        raise ValueError(f"{first} is negative")
    return (first, second, third)


def closure() -> Any:
    count = 0

    def device_count() -> int:
        nonlocal count
        count += 1
        return count

    return device_count


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module that looks like a backend of torch."""
    module = ModuleType("acme_backend")
    module.__spec__ = type("Spec", (), {"_initializing": False})()  # type: ignore[assignment]
    module.is_available = acme_is_available  # type: ignore[attr-defined]
    module.device_count = closure()  # type: ignore[attr-defined]
    module.cached = functools.cache(closure())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "acme_backend", module)
    watched = {
        "acme_backend": ("is_available", "device_count", "cached", "absent"),
        "never_imported": ("is_available",),
    }
    monkeypatch.setattr(accelerator_guard, "WATCHED", watched)
    yield module
    assert acme_is_available.__code__.co_filename == __file__
    assert acme_is_available.__code__.co_varnames[:3] == ("first", "second", "third")


def test_values_and_exceptions_pass(acme: Any) -> None:
    with AcceleratorGuard() as guard:
        assert acme.is_available(1) == (1, 2, 3)
        assert acme.is_available(1, third=5) == (1, 2, 5)
        with pytest.raises(ValueError, match="-1 is negative"):
            acme.is_available(-1)
        assert [acme.device_count() for _ in range(3)] == [1, 2, 3]
        assert [acme.cached() for _ in range(2)] == [1, 1]
    assert acme.device_count() == 4
    assert acme.is_available(second=7, first=6) == (6, 7, 3)
    functions = [*["is_available"] * 3, "device_count", "cached"]
    assert [touch.event for touch in guard.touches] == [f"acme_backend.{name}() was called" for name in functions]
    assert {touch.chain[-1][0] for touch in guard.touches} == {__file__}


def test_guards_within_guards(acme: Any) -> None:
    own, finders = acme.is_available.__code__, list(sys.meta_path)
    outer, inner = AcceleratorGuard(), AcceleratorGuard()
    outer.install()
    inner.install()
    acme.is_available(1)
    assert (len(outer.touches), len(inner.touches)) == (0, 1)
    inner.remove()
    inner.remove()
    acme.is_available(2)
    assert (len(outer.touches), len(inner.touches)) == (1, 1)
    # The outer one may also go first.
    inner.install()
    outer.remove()
    acme.is_available(3)
    assert (len(outer.touches), len(inner.touches)) == (1, 2)
    assert len(sys.meta_path) == len(finders) + 1
    inner.remove()
    assert acme.is_available.__code__ is own
    assert sys.meta_path == finders


@pytest.mark.filterwarnings("ignore::pytest.PytestWarning")  # --fixtures collects where nobody catches warnings
@pytest.mark.parametrize("arguments", [[], ["--accelerator-guard=off"], ["--help"], ["--nonsense"], ["--fixtures"]])
def test_no_leftovers(acme: Any, pytester: pytest.Pytester, arguments: list[str]) -> None:
    pytester.makepyfile("import acme_backend\nGPU = acme_backend.is_available(1)\ndef test_one(): pass\n")
    own = acme.is_available.__code__
    result = pytester.runpytest_inprocess(*(arguments or ["-W", "default::pytest.PytestWarning"]))
    assert accelerator_guard._guards == []
    assert acme.is_available.__code__ is own
    if not arguments:
        result.assert_outcomes(passed=1, warnings=1)


COUNT_AND_FORK = """
import os, torch
torch.cuda.device_count()
pid = os.fork()
if pid == 0:
    os._exit(torch.cuda._is_in_bad_fork())
print("spoilt" if os.waitpid(pid, 0)[1] else "well")
"""


def test_on_cuda(tmp_path: Path) -> None:
    """With PYTEST_TENSORIZER_CUDA_PYTHON, an interpreter with pytest and a CUDA build of torch; it needs no GPU."""
    python = os.environ.get("PYTEST_TENSORIZER_CUDA_PYTHON")
    if not python:
        pytest.skip("PYTEST_TENSORIZER_CUDA_PYTHON names no interpreter with a CUDA build of torch")
    distribution(tmp_path / "site", "tensorizer", "pytest11", "pytest_tensorizer.plugin")
    write(tmp_path / "tests", test_innocent=INNOCENT, **TOUCHING)

    path = python_path(tmp_path / "site", Path(__file__).parents[1])

    def culprits(name: str, **variables: str) -> list[str]:
        done = subprocess.run(
            [python, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tensorizer", name, "test_innocent.py"],
            cwd=tmp_path / "tests", capture_output=True, text=True, timeout=300, check=False,
            env=environment(tmp_path, PYTHONPATH=path, **variables),
        )  # fmt: skip
        assert "1 passed" in done.stdout, done.stdout + done.stderr
        return [text.partition(": AcceleratorWarning")[0] for text in done.stdout.splitlines() if INVOLVED in text]

    for name, number in ("test_question", 3), ("test_lazy", 3), ("test_any", 2):
        assert culprits(f"{name}.py") == [f"  {tmp_path / 'tests' / name}.py:{number}"]
    # Where NVML counts, the driver is left alone; else torch asks it, and a fork is the arbiter.
    asked = subprocess.run([python, "-c", COUNT_AND_FORK], capture_output=True, text=True, timeout=300, check=True)
    alias = [f"  {tmp_path / 'tests' / 'test_alias'}.py:2"]
    assert culprits("test_alias.py") == (alias if asked.stdout == "spoilt\n" else [])
    assert culprits("test_question.py", PYTORCH_NVML_BASED_CUDA_CHECK="1") == []
