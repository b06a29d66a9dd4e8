"""A test with the marker is told exactly as it would be without: the same reports, sections, warnings and junit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.process.scenario import Run, junit, run_pytest, without_numbers, write

TESTS = """
    import logging, os, subprocess, sys, unittest, warnings
    import pytest

    def test_pass():
        pass

    def test_fail():
        assert [1, 2, 3] == [1, 2, 4]

    def test_raises_with_cause():
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    def test_skip():
        pytest.skip("why not")

    @pytest.mark.skip(reason="marked")
    def test_skip_mark():
        pass

    @pytest.mark.skipif("sys.platform == 'linux'", reason="text condition")
    def test_skipif():
        pass

    @pytest.mark.xfail(reason="known")
    def test_xfail():
        assert 0

    @pytest.mark.xfail(reason="gone", strict=True)
    def test_xpass_strict():
        pass

    @pytest.mark.xfail
    def test_xpass():
        pass

    def test_xfail_call():
        pytest.xfail("said so")

    @pytest.fixture
    def bad_setup():
        print("in setup")
        raise RuntimeError("no setup")

    def test_error_in_setup(bad_setup):
        pass

    @pytest.fixture
    def bad_teardown():
        print("in setup")
        yield
        print("in teardown")
        raise RuntimeError("no teardown")

    def test_error_in_teardown(bad_teardown):
        print("in call")

    def test_fails_twice(bad_teardown):
        assert 0

    @pytest.mark.parametrize("value", [1, "a::b/[c]", None, "é", "x@y"])
    def test_parametrised(value):
        assert value != 1

    @pytest.mark.parametrize("param", ["p"], indirect=True)
    def test_indirect(param):
        assert param == "pp"

    @pytest.fixture
    def param(request):
        return request.param * 2

    class TestClass:
        @pytest.fixture(autouse=True)
        def here(self):
            self.value = 1

        def test_method(self):
            assert self.value == 1

        class TestInner:
            def test_inner(self):
                assert 0

    class TestOld(unittest.TestCase):
        def setUp(self):
            self.value = 1

        def test_old(self):
            self.assertEqual(self.value, 2)

    @pytest.fixture
    def talks():
        print("setup out"); print("setup err", file=sys.stderr); logging.getLogger("a").warning("setup log")
        yield
        print("teardown out"); print("teardown err", file=sys.stderr); logging.getLogger("a").warning("teardown log")

    def test_sections(talks):
        print("call out: é"); print("call err", file=sys.stderr); logging.getLogger("a").warning("call log")
        assert 0

    def test_output_of_a_child():
        subprocess.run(["echo", "from a child"])
        os.write(2, b"bytes \\xff")

    def test_warns():
        warnings.warn("old ways", DeprecationWarning)
        warnings.warn("mine", OurWarning)

    class OurWarning(UserWarning):
        pass

    def test_properties(record_property):
        record_property("peak", 3)

    def test_capsys(capsys):
        print("hidden")
        assert capsys.readouterr().out == "hidden\\n"
        print("seen")

    def test_capfd(capfd):
        os.system("echo hidden")
        assert capfd.readouterr().out == "hidden\\n"
        with capfd.disabled():
            pass

    def test_caplog(caplog):
        logging.getLogger("b").error("boo")
        assert caplog.messages == ["boo"]

    def test_tmp_path(tmp_path):
        (tmp_path / "x").write_text("x")
        assert tmp_path.name == "test_tmp_path0"

    def test_monkeypatch(monkeypatch, request):
        monkeypatch.setenv("A", "b")
        assert os.environ["A"] == "b" and os.environ["PYTEST_CURRENT_TEST"].startswith(request.node.nodeid)

    def test_subtests(subtests):
        with subtests.test("good"):
            pass
        with subtests.test("bad", i=1):
            assert 0
        print("end")

    def test_closes_stdout():
        print("last words")
        sys.stdout.flush()

    def test_stdin():
        sys.stdin.read()

    def test_prints_much():
        for _ in range(3000):
            print("x" * 99)
"""

FUZZED = """
    from hypothesis import given, settings, strategies as st

    @settings(derandomize=True, database=None)
    @given(st.integers())
    def test_hypothesis(n):
        assert n < 100
"""


JUNIT = ("-o", "junit_logging=all", "-o", "junit_family=xunit1")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("parity"), test_it=TESTS, test_fuzzed=FUZZED)


@pytest.fixture(scope="module")
def ordinary(directory: Path) -> Run:
    return run_pytest(directory, "--junitxml=ordinary.xml", "-rA", *JUNIT)


@pytest.fixture(scope="module")
def isolated(directory: Path) -> Run:
    return run_pytest(directory, "--junitxml=isolated.xml", "-rA", *JUNIT, ISOLATE="1")


@pytest.fixture(scope="module")
def distributed(directory: Path) -> Run:
    chosen = "pass or sections or error or xfail or subtests or parametrised"
    return run_pytest(directory, "--junitxml=distributed.xml", "-n2", "-k", chosen, ISOLATE="1")


NAMES = """test_pass test_fail test_raises_with_cause test_skip test_skip_mark test_skipif test_xfail test_xpass_strict
    test_xpass test_xfail_call test_error_in_setup test_error_in_teardown test_fails_twice
    test_parametrised[1] test_parametrised[a::b/[c]] test_parametrised[None] test_parametrised[\\xe9]
    test_parametrised[x@y] test_indirect[p] TestClass::test_method TestInner::test_inner TestOld::test_old
    test_sections test_output_of_a_child test_warns test_properties test_capsys test_capfd test_caplog test_tmp_path
    test_monkeypatch test_hypothesis test_subtests test_closes_stdout test_stdin test_prints_much""".split()


def facts(run: Run, name: str) -> list[dict[str, Any]]:
    """All that the reports of a test say, but for times and addresses."""
    reports = [{**report, "duration": None} for report in run.reports(name)]
    for report in reports:
        report["text"] = without_numbers(report["text"])
    return reports


def warnings_of(run: Run) -> list[dict[str, Any]]:
    return sorted((r for r in run.records if "warning" in r), key=str)


@pytest.mark.parametrize("name", NAMES)
def test_reports_are_the_same(ordinary: Run, isolated: Run, name: str) -> None:
    assert facts(ordinary, name), f"{name} did not run at all"
    assert facts(isolated, name) == facts(ordinary, name)


def test_nothing_is_left_out(ordinary: Run, isolated: Run) -> None:
    told = {r["nodeid"] for r in ordinary.records if "outcome" in r}
    assert len(told) == len(NAMES)
    assert [r["nodeid"] for r in isolated.records if "outcome" in r] == [
        r["nodeid"] for r in ordinary.records if "outcome" in r
    ]
    assert isolated.returncode == ordinary.returncode == 1


def test_warnings_are_the_same(ordinary: Run, isolated: Run) -> None:
    assert len(warnings_of(ordinary)) >= 2
    assert warnings_of(isolated) == warnings_of(ordinary)
    assert "DeprecationWarning: old ways" in isolated.text


def test_summary_is_the_same(ordinary: Run, isolated: Run) -> None:
    def summary(run: Run) -> str:
        return run.text.rpartition("\n=")[2].partition(" in ")[0].strip("= ")

    assert summary(isolated) == summary(ordinary)


def test_junit_is_the_same(directory: Path, ordinary: Run, isolated: Run) -> None:
    assert junit(directory / "isolated.xml") == junit(directory / "ordinary.xml")


def test_under_xdist(directory: Path, ordinary: Run, distributed: Run) -> None:
    def told(run: Run, nodeid: str) -> list[Any]:
        mine = [report for report in run.records if report["nodeid"] == nodeid and "outcome" in report]
        return [(r["when"], r["outcome"], r["xfail"], r["sections"]) for r in mine]

    nodeids = {report["nodeid"] for report in distributed.records if "outcome" in report}
    assert len(nodeids) > 10
    assert {nodeid: told(distributed, nodeid) for nodeid in nodeids} == {
        nodeid: told(ordinary, nodeid) for nodeid in nodeids
    }
    assert len(junit(directory / "distributed.xml")) == len(nodeids)
