from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from pytest_tensorizer.process.threads import OneThread


@pytest.fixture
def three() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three")
def test_one_thread_until_released() -> None:
    real = torch.get_num_threads
    threads = OneThread()
    assert real() == 1
    assert torch.get_num_threads() == 3, "what the code sees is what it will have"
    threads.release()
    assert torch.get_num_threads() == real() == 3
    assert torch.get_num_threads is real


@pytest.mark.usefixtures("three")
def test_what_is_asked_for_meanwhile_holds_afterwards() -> None:
    real = torch.get_num_threads
    threads = OneThread()
    alias = torch.set_num_threads
    alias(2)
    assert (real(), torch.get_num_threads()) == (1, 2)
    threads.release()
    assert real() == 2
    alias(3)  # `from torch import set_num_threads`
    assert real() == 3
