"""The suite catches every broken subject of `tests/faulty/`, by the check that is named for its fault."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

FORMATS = [
    ("DropsLastTensor", "drops-last", "test_collection", "is missing"),
    ("TransposesSquares", "transposes-squares", "test_collection", "'Blocks.0.Weight' differs"),
    ("ExchangesAlike", "exchanges-alike", "test_collection", "differs in"),
    ("LowersNames", "lowers-names", "test_collection", "has shape (48, 48), expected (1, 257)"),
    ("LosesTails", "loses-tails", "test_collection", "'large' differs"),
    ("CachesByPath", "caches-by-path", "test_replaced", "is missing"),
    ("Downcasts", "downcasts", "test_bits", "differs in"),
    ("Unties", "unties", "test_ties", "memory"),
    ("Replaces", "replaces", "test_aliases", "differs in"),
]
"""Fault, the name of that format, the function of its check, and what the reason is to say."""

OTHERS = [
    (
        "--tensorizer-engine=tests.faulty.engines:StaleAlias",
        "test_outputs.py::test_engine[llama]",
        "the weights are identical, the outputs are not",
    ),
    (
        "--tensorizer-engine=tests.faulty.engines:ReversesEmbeddings",
        "test_outputs.py::test_prompt_embeds[gpt2]",
        "prompt embeddings against the token ids they stand for",
    ),
    (
        "--tensorizer-prompt-embeds=tests.faulty.loaders:ignores_device_tag",
        "test_prompt_embeds.py::test_accepts",
        "Attempting to deserialize object on a CUDA device",
    ),
]

SEARCHED = [
    ("any_state_dict", "LosesOffsets", "roundtrip/any-state-dict  loses-offsets", "wrong bits"),
    (
        "any_state_dict",
        "EmptiesTheCallers",
        "roundtrip/any-state-dict  empties-the-callers",
        "changed the caller's mapping",
    ),
    ("any_module", "Unfreezes", "modules/any-module  unfreezes", "wrong requires_grad"),
    ("any_module", "Unties", "modules/any-module  unties", "wrong ties"),
    ("damaged_file", "ClaimsToVerify", "integrity/damaged-file  claims-to-verify", "accepted bits"),
    ("damaged_file", "TakesBrokenForEmpty", "integrity/damaged-file  takes-broken-for-empty", "accepted missing"),
    ("damaged_file", "DiesOfBroken", "integrity/damaged-file  dies-of-broken", "died of SIGABRT in formats.py:load"),
    (
        "any_payload",
        "takes_what_is_not_finite",
        "prompt-embeds/any-payload  takes_what_is_not_finite",
        "accepted it",
    ),
]
"""Check, fault, how the summary names the two, and how the failure is to be named."""
PROPERTIES = "tensorizer-conformance/test_properties.py::test"


def _run(*arguments: str, **variables: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "--tensorizer-conformance", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def tested() -> str:
    """The summary of one run of each format's check: to start a run takes longer than to run these."""
    subjects = [f"--tensorizer-format=tests.faulty.formats:{fault}" for fault, *_ in FORMATS]
    modules = [f"tensorizer-conformance/test_{area}.py" for area in ("roundtrip", "modules")]
    chosen = " or ".join(f"({check}[ and {name})" for _, name, check, _ in FORMATS)
    status, output = _run(*subjects, *modules, "-k", chosen)
    summary = output.partition("= tensorizer conformance =")[2]
    assert status == 1, summary or output
    assert re.search(r"^NOT PASSED: \d+ REQUIRED CHECKS FAIL$", summary, re.MULTILINE), output
    return summary


@pytest.mark.parametrize(
    ("name", "check", "words"), [case[1:] for case in FORMATS], ids=[fault for fault, *_ in FORMATS]
)
def test_fault_of_a_format_is_caught(tested: str, name: str, check: str, words: str) -> None:
    failures = [block for block in tested.split("FAILS   ")[1:] if block.split()[1] == name]
    assert failures, tested
    assert all(f"::{check}[" in block for block in failures)
    # The reason is the fault, and not some accident on the way.
    assert any(words in " ".join(block.split()) for block in failures), failures


@pytest.mark.parametrize(("subject", "check", "words"), OTHERS, ids=[case[0].partition("=")[2] for case in OTHERS])
def test_fault_is_caught(subject: str, check: str, words: str) -> None:
    status, output = _run(subject, f"tensorizer-conformance/{check}")
    summary = output.partition("= tensorizer conformance =")[2]
    assert status == 1, output
    assert re.search(r"^NOT PASSED: \d+ REQUIRED CHECKS? FAILS?$", summary, re.MULTILINE), output
    assert words in " ".join(summary.split()), output


@pytest.fixture(scope="module")
def searched() -> str:
    """The summary of one run of all of these: a check takes a second or two, and to start a run takes several."""
    loader = "takes_what_is_not_finite"
    faults = [(check, fault, told.split()[1]) for check, fault, told, _ in SEARCHED if fault != loader]
    subjects = [f"--tensorizer-format=tests.faulty.formats:{fault}" for _, fault, _ in faults]
    subjects += ["--tensorizer-format=tests.faulty.formats:Healthy", "--tensorizer-format=tensorizer"]
    cases = [(check, name) for check, _, name in faults]
    cases += [*((check, "healthy") for check in dict(cases)), ("any_module", "tensorizer")]
    ids = [f"{PROPERTIES}_{check}[{name}]" for check, name in cases]
    embeds = f"--tensorizer-prompt-embeds=tests.faulty.loaders:{loader}"
    status, output = _run(*subjects, embeds, *ids, f"{PROPERTIES}_any_payload", COLUMNS="100", PYTHONHASHSEED="1")
    summary = output.partition("= tensorizer conformance =")[2]
    assert status == 1, summary or output
    return summary


@pytest.mark.parametrize(("told", "words"), [case[2:] for case in SEARCHED], ids=[case[1] for case in SEARCHED])
def test_fault_is_found(searched: str, told: str, words: str) -> None:
    """Among the examples of the gate, which are the same in each run."""
    found = re.search(rf"^FAILS   {told}\n +(.*)$", searched, re.MULTILINE)
    assert found is not None, searched
    assert re.fullmatch(rf"(a failure|\d+ distinct failures) in \d+ examples: (.*; )?{words}(; .*)?", found[1]), (
        searched
    )


def test_searches_find_nothing_in_a_healthy_format(searched: str) -> None:
    assert f"NOT PASSED: {len(SEARCHED)} REQUIRED CHECKS FAIL\n" in searched, "those with a fault, and no others"
    checks = re.findall(r"^ +(\S+)  healthy\s+100 in ", searched, re.MULTILINE)
    assert sorted(checks) == ["integrity/damaged-file", "modules/any-module", "roundtrip/any-state-dict"]


def test_the_gate_tries_the_same_in_each_run(searched: str) -> None:
    """With other checks beside it or none, and whatever the order of sets."""
    check = f"{PROPERTIES}_any_module[tensorizer]"
    status, output = _run("--tensorizer-format=tensorizer", check, COLUMNS="100", PYTHONHASHSEED="2")
    assert status == 0, output
    told = [_tried(summary) for summary in (searched, output)]
    assert told[0] == told[1]
    assert "T23-persistence" in told[0][0]


def _tried(summary: str) -> tuple[str, str, str]:
    """What is told of the one check that finds what is known, which is that of tensorizer."""
    known = re.search(r"^Tried: [\d,]+ examples, \d+ known to fail \((.*?)\)", summary, re.MULTILINE | re.DOTALL)
    line = re.search(r"^ +modules/any-module  tensorizer\s+(\d+) in .* second\), (\d+) refused$", summary, re.MULTILINE)
    assert known is not None, summary
    assert line is not None, summary
    return " ".join(known[1].split()), line[1], line[2]


def test_nothing_is_found_in_a_healthy_format() -> None:
    modules = [f"tensorizer-conformance/test_{area}.py" for area in ("roundtrip", "modules", "storage")]
    status, output = _run("--tensorizer-format=tests.faulty.formats:Healthy", *modules)
    assert status == 0, output
    assert "PASSED: EVERY REQUIRED CHECK PASSES, OF THE PART THAT WAS ASKED FOR\n" in output


def test_a_fault_in_a_format_changes_what_an_engine_generates() -> None:
    """The weights that a format changed are told from the weights; without those, the outputs tell."""
    status, output = _run(
        "--tensorizer-format=tests.faulty.formats:Downcasts",
        "tensorizer-conformance/test_outputs.py::test_identical[downcasts-llama-float32-local]",
    )
    assert status == 1, output
    assert "llama as downcasts at local, float32: other weights than the original's" in " ".join(output.split())


def test_an_accelerator_touched_by_the_users_tests_is_told() -> None:
    repository = REPOSITORY / "tests/faulty/repository"
    check = "tensorizer-conformance/test_collection.py"
    arguments = ["-c", str(repository / "pytest.ini"), f"--rootdir={repository}", "--tensorizer-strict"]
    status, output = _run(*arguments, check)
    assert status == 1, output
    told = "FAILS collection/no-accelerator own-tests torch.cuda.is_available() was called at touches_on_import.py:4"
    assert told in " ".join(output.split())
