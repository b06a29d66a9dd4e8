"""The suite catches every broken subject of `tests/faulty/`, by the check that is named for its fault."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

CAUGHT = [
    ("--tensorizer-format=tests.faulty.formats:DropsLastTensor", "test_roundtrip.py::test_collection", "is missing"),
    (
        "--tensorizer-format=tests.faulty.formats:TransposesSquares",
        "test_roundtrip.py::test_collection",
        "'Blocks.0.Weight' differs",
    ),
    ("--tensorizer-format=tests.faulty.formats:ExchangesAlike", "test_roundtrip.py::test_collection", "differs in"),
    (
        "--tensorizer-format=tests.faulty.formats:LowersNames",
        "test_roundtrip.py::test_collection",
        "has shape (48, 48), expected (1, 257)",
    ),
    ("--tensorizer-format=tests.faulty.formats:LosesTails", "test_roundtrip.py::test_collection", "'large' differs"),
    ("--tensorizer-format=tests.faulty.formats:CachesByPath", "test_roundtrip.py::test_replaced", "is missing"),
    ("--tensorizer-format=tests.faulty.formats:Downcasts", "test_roundtrip.py::test_bits", "differs in"),
    ("--tensorizer-format=tests.faulty.formats:Unties", "test_modules.py::test_ties", "memory"),
    ("--tensorizer-format=tests.faulty.formats:Replaces", "test_modules.py::test_aliases", "differs in"),
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


def _run(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "--tensorizer-conformance", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("subject", "check", "words"), CAUGHT, ids=[case[0].partition("=")[2] for case in CAUGHT])
def test_fault_is_caught(subject: str, check: str, words: str) -> None:
    status, output = _run(subject, f"tensorizer-conformance/{check}")
    summary = output.partition("= tensorizer conformance =")[2]
    assert status == 1, output
    assert re.search(r"^NOT PASSED: \d+ REQUIRED CHECKS? FAILS?$", summary, re.MULTILINE), output
    # The reason is the fault, and not some accident on the way.
    assert words in " ".join(summary.split()), output


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
    told = "collection/no-accelerator own-tests Failed: torch.cuda.is_available() was called at touches_on_import.py:4"
    assert told in " ".join(output.split())
