"""The strategies are good neighbours: in a process of its own each draws under the strictest settings, in threads, in a
fork and in workers; and an import changes nothing for anybody."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile

import pytest

STRATEGIES = {
    "dtypes": "dtypes()",
    "shapes": "shapes()",
    "names": "names(surrogates=True)",
    "tensors": "tensors()",
    "tensors of drawn arguments": (
        "tensors(dtypes(), shapes(max_dims=3), strides=st.sampled_from(STRIDES), requires_grad=st.booleans(),"
        " cls=st.sampled_from([torch.Tensor, torch.nn.Parameter, Subclass]))"
    ),
    "tensors of any layout": "tensors(layout=st.sampled_from([torch.strided, torch.sparse_coo, torch.sparse_bsc]))",
    "views": "tensors(view=st.sampled_from(['conj', 'neg']))",
    "sparse tensors": "sparse_tensors().map(lambda spec: (spec.build(), spec.dense()))",
    "state dicts": "state_dict_specs(nested=True).map(lambda spec: (spec.build(), spec.dense()))",
    "modules": "module_specs().map(lambda spec: (spec.build(), spec.blank()))",
    "damaged": "damaged(b'some text')",
}
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
HEAD = """
from hypothesis import given, settings, strategies as st
from pytest_tensorizer.strategies import *
"""


def run(script: str, *flags: str) -> str:
    # -I: nothing of the tests' environment, and no conftest, has a part in it.
    # An empty directory, without what Hypothesis has found out about Unicode before.
    with tempfile.TemporaryDirectory() as empty:
        command = [sys.executable, "-I", *flags, "-c", script]
        result = subprocess.run(command, cwd=empty, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr[-3000:]
    assert not result.stderr
    return result.stdout


def test_each_is_healthy_where_warnings_are_errors() -> None:
    """With Hypothesis's own settings: its health checks, and a deadline."""
    checks = "".join(
        f"""
@settings(database=None, derandomize=True)
@given({strategy})
def run(value):
    seen[{name!r}] = seen.get({name!r}, 0) + 1
run()
"""
        for name, strategy in STRATEGIES.items()
    )
    seen = eval(run(f"{HEAD}\nseen = {{}}\n{checks}\nprint(seen)", "-W", "error"))
    assert list(seen) == list(STRATEGIES)
    assert min(seen.values()) >= 20


def test_the_failure_of_a_test_is_told_for_every_dtype() -> None:
    """torch has no repr for scalars of int1 and others, and Hypothesis wants that of each argument."""
    script = f"""{HEAD}
from hypothesis import Phase
from pytest_tensorizer.strategies.dtypes import all_dtypes
def has_repr(dtype):
    try:
        return repr(Dense(dtype, ()).build())
    except (NotImplementedError, RuntimeError):
        return ""
told, without = [], [dtype for dtype in all_dtypes() if not has_repr(dtype)]
assert torch.int1 in without
for dtype in without:
    for drawn in (tensors(dtype, ()), state_dicts(tensor_specs(dtype, ()), min_size=1, max_size=1)):
        @settings(database=None, derandomize=True, max_examples=1, phases=[Phase.generate])
        @given(drawn)
        def fails(value):
            raise ZeroDivisionError
        try:
            fails()
        except ZeroDivisionError as error:
            told.append("\\n".join(error.__notes__))
assert len(told) == 2 * len(without)
print(all("Dense(" in text or "StateDict(" in text for text in told))
"""
    assert run(script) == "True\n"


ONCE = (
    "Dense(torch.complex32, (2,)).build()",
    "Dense(torch.complex32, (0,)).dense()",
    "Dense(torch.complex32, (2,), [1.0])",
    "Dense(torch.qint8, (2,), strides=(2,)).build()",
    "Dense(torch.quint4x2, (2,)).build()",
    "Compressed(torch.sparse_csr, torch.float32, (2, 2)).build()",
    "Coo(torch.float32, (2, 2)).build()",
)


@FORKS
def test_what_torch_says_once_is_no_error_in_code_that_was_pasted() -> None:
    """Each is the first thing that happens in a process."""
    script = f"""{HEAD}
import os
for code in {ONCE!r}:
    child = os.fork()
    if not child:
        eval(code)
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(script, "-W", "error") == "7\n" * len(ONCE)


def test_two_threads_can_draw_at_once() -> None:
    script = f"""{HEAD}
import threading
start, seen = threading.Barrier(2), []
def draw():
    @settings(database=None, max_examples=40, deadline=None)
    @given(st.tuples(tensors(), sparse_tensors().map(build), state_dicts(), modules()))
    def run(values):
        seen.append(threading.get_ident())
    start.wait()
    run()
threads = [threading.Thread(target=draw) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print([seen.count(thread.ident) >= 40 for thread in threads])
"""
    assert run(script, "-W", "error") == "[True, True]\n"


@FORKS
def test_a_forked_child_can_draw() -> None:
    script = f"""{HEAD}
import os, signal
def drawn():
    @settings(database=None, max_examples=20, deadline=None)
    @given(strategy)
    def run(values):
        pass
    run()
    build(Dense(torch.complex128, (8192,), [1.0]))
strategy = st.tuples(tensors(), sparse_tensors().map(build), state_dicts(), modules())
for _ in range(2):
    child = os.fork()
    if not child:
        signal.alarm(60)
        drawn()
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    # The second child is one of a process that has used torch's threads: from then on, torch itself makes no sparse
    # tensor in a child, but waits for ever. All others must be made without these threads, and the large one is such.
    strategy = st.tuples(tensors(), state_dicts(), modules())
    drawn()
    torch.ones(1 << 20).sum()
"""
    assert run(script) == "7\n7\n"


def test_workers_of_xdist_collect_and_draw_the_same(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from hypothesis import given, settings
        from pytest_tensorizer.strategies import *

        @pytest.mark.parametrize("strategy", [tensors(), sparse_tensors(), state_dicts(), modules()])
        def test_draws(strategy):
            @settings(database=None, max_examples=20, deadline=None)
            @given(strategy)
            def run(value):
                pass
            run()
        """
    )
    result = pytester.runpytest_subprocess("-n", "2", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=4)


def test_an_import_registers_nothing_and_initialises_nothing() -> None:
    script = """
import torch
from hypothesis import strategies as st
from hypothesis.strategies._internal import types
before = dict(types._global_type_lookup)
from pytest_tensorizer.strategies import *
assert types._global_type_lookup == before
assert torch.Tensor not in before
assert not torch.cuda.is_initialized()
@st.composite
def values(draw):
    return [draw(tensors()), draw(sparse_tensors()).build(), draw(modules()), draw(state_dicts())]
from hypothesis import given, settings
settings(database=None, max_examples=20)(given(values())(lambda found: None))()
assert types._global_type_lookup == before
assert not torch.cuda.is_initialized()
register()
added = {kind for kind in types._global_type_lookup if kind not in before}
print(sorted(kind.__name__ for kind in added))
"""
    assert run(script) == "['Parameter', 'Tensor']\n"


def test_what_is_registered_draws_tensors() -> None:
    script = f"""{HEAD}
register()
register()
seen = set()
@settings(database=None, derandomize=True)
@given(...)
def run(tensor: torch.Tensor, parameter: torch.nn.Parameter):
    assert type(tensor) is torch.Tensor and type(parameter) is torch.nn.Parameter
    seen.update((tensor.dtype, parameter.dtype, parameter.requires_grad))
run()
assert {{True, False}} <= seen
print(len(seen) > 20)
"""
    assert run(script) == "True\n"


def test_the_package_is_no_plugin_of_hypothesis() -> None:
    """Hypothesis imports such plugins in every run of whoever has installed them."""
    groups = {point.group for point in importlib.metadata.distribution("pytest-tensorizer").entry_points}
    assert groups == {"pytest11"}


def test_the_plugin_imports_neither_hypothesis_nor_torch() -> None:
    script = """
import sys
import pytest_tensorizer.plugin
print([name for name in ("hypothesis", "torch", "numpy", "pytest_tensorizer.strategies") if name in sys.modules])
"""
    assert run(script) == "[]\n"
