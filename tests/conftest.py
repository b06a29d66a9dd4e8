"""What all tests share: pytester, no way to a model hub, one thread of torch for each process of pytest-xdist, and the
shell of a person wherever they run."""

from __future__ import annotations

import os

import pytest
import torch

pytest_plugins = ["pytester"]

os.environ["HF_HUB_OFFLINE"] = "1"

# On a CI server pytest prints each message twice, and Hypothesis keeps no database. What the tests start is to do what
# it does elsewhere.
ON_CI = (
    "CI",
    "BUILD_NUMBER",
    "TF_BUILD",
    "BUILDKITE",
    "CIRCLECI",
    "CIRRUS_CI",
    "CODEBUILD_BUILD_ID",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "HEROKU_TEST_RUN_ID",
    "TEAMCITY_VERSION",
    "bamboo.buildKey",
    "__TOX_ENVIRONMENT_VARIABLE_ORIGINAL_CI",
)
for variable in ON_CI:
    os.environ.pop(variable, None)


def pytest_sessionstart(session: pytest.Session) -> None:
    # Two processes with two threads each, on two cores, wait for one another: it takes three times as long.
    if hasattr(session.config, "workerinput"):
        torch.set_num_threads(1)
