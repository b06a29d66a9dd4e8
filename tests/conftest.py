"""What all tests share: pytester, no way to a model hub, and one thread of torch for each process of pytest-xdist."""

from __future__ import annotations

import os

import pytest
import torch

pytest_plugins = ["pytester"]

os.environ["HF_HUB_OFFLINE"] = "1"


def pytest_sessionstart(session: pytest.Session) -> None:
    # Two processes with two threads each, on two cores, wait for one another: it takes three times as long.
    if hasattr(session.config, "workerinput"):
        torch.set_num_threads(1)
