"""The plugin's own hook."""

from __future__ import annotations

import pytest


@pytest.hookspec
def pytest_tensorizer_child_environment(item: pytest.Item) -> dict[str, str] | None:
    """Environment variables for the clean process that is about to run `item`.

    Called in the pytest process, so it is here that an expensive server is started, once for all the children:
    session fixtures are set up anew in each of them.
    """
