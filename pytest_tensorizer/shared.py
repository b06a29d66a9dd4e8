"""What the processes of one session share: an S3 service, and the directory of the tiny models.

Clean processes find both through environment variables that the pytest process sets for them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_tensorizer.options import Settings
from pytest_tensorizer.process.pytest_child import CLEAN

if TYPE_CHECKING:
    from pytest_tensorizer.storage import S3Service

MODELS = "PYTEST_TENSORIZER_MODELS"
S3 = "PYTEST_TENSORIZER_S3"
_SERVICE: pytest.StashKey[S3Service] = pytest.StashKey()
_S3_FIXTURES = {"_tensorizer_s3_service", "tensorizer_storage"}


@contextmanager
def s3_service(config: pytest.Config) -> Iterator[S3Service]:
    """The service of this process: that of the parent in a clean one, else the user's or a server of our own.

    The server is started once and ends with the session.
    """
    from pytest_tensorizer.storage import S3Service, moto_service

    if CLEAN in config.stash and S3 in os.environ:
        yield S3Service(**json.loads(os.environ[S3]))
        return
    if _SERVICE not in config.stash:
        settings = Settings.of(config)
        if settings.s3_endpoint:
            config.stash[_SERVICE] = users_service(settings)
        else:
            stack = ExitStack()
            config.stash[_SERVICE] = stack.enter_context(moto_service())
            config.add_cleanup(stack.close)
    yield config.stash[_SERVICE]


def users_service(settings: Settings) -> S3Service:
    """The service of --tensorizer-s3-endpoint. Raises pytest.UsageError where the credentials are not given."""
    from pytest_tensorizer.storage import S3Service

    names = settings.s3_credentials.split(":")
    if len(names) != 2 or not all(names):
        raise pytest.UsageError(
            "--tensorizer-s3-endpoint needs --tensorizer-s3-credentials=ID_VAR:SECRET_VAR, the names of the two "
            f"environment variables that hold access key and secret, not {settings.s3_credentials!r}"
        )
    for name in names:
        if not os.environ.get(name):
            raise pytest.UsageError(f"--tensorizer-s3-credentials: the environment variable {name!r} is not set")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    return S3Service(settings.s3_endpoint, os.environ[names[0]], os.environ[names[1]], region)


def models_directory(config: pytest.Config, factory: pytest.TempPathFactory) -> Path:
    """One directory for all processes of the session: beside the workers' own, as xdist lays them."""
    if CLEAN in config.stash and MODELS in os.environ:
        return Path(os.environ[MODELS])
    base = factory.getbasetemp()
    is_worker = "workerinput" in vars(config) and CLEAN not in config.stash
    return (base.parent if is_worker else base) / "tensorizer-models"


def child_environment(item: pytest.Item) -> dict[str, str]:
    """The variables for the clean process of `item`; starts the S3 service here if the test may want it."""
    config = item.config
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    variables = {MODELS: str(models_directory(config, factory))}
    if item.get_closest_marker("tensorizer_check") is not None:
        variables["HF_HUB_OFFLINE"] = "1"
    if _S3_FIXTURES & set(getattr(item, "fixturenames", ())):
        with s3_service(config) as service:
            variables[S3] = json.dumps(vars(service))
    return variables
