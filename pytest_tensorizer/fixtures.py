"""The public fixtures: thin doors over classes that work without pytest. What is heavy is imported inside them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tensorizer.options import Settings

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from pytest_tensorizer.checkpoint import Checkpoint, WeightsFile
    from pytest_tensorizer.engines import Engine
    from pytest_tensorizer.formats import Format
    from pytest_tensorizer.models import Model
    from pytest_tensorizer.prompt_embeds import PromptEmbedsLoader
    from pytest_tensorizer.storage import S3Bucket, S3Service, Storage


@pytest.fixture(scope="session")
def tensorizer_formats(pytestconfig: pytest.Config) -> list[Format]:
    """The formats under test: those of --tensorizer-format. Override it in the root conftest to bring your own."""
    from pytest_tensorizer import formats

    return [formats.resolve(target) for target in Settings.of(pytestconfig).format]


@pytest.fixture
def tensorizer_format(request: pytest.FixtureRequest, tensorizer_formats: list[Format]) -> Format:
    """Each format under test in turn: a test that asks for it runs once for each."""
    for format in tensorizer_formats:
        if format.name == request.param:
            return format
    names = ", ".join(repr(format.name) for format in tensorizer_formats)
    raise LookupError(
        f"the fixture tensorizer_formats has no format {request.param!r}, only {names}: "
        "override it in the root conftest, or name the formats with --tensorizer-format"
    )


@pytest.fixture(scope="session")
def tensorizer_engine(pytestconfig: pytest.Config) -> Engine:
    """The engine of --tensorizer-engine. Override it in the root conftest to bring your own."""
    from pytest_tensorizer import engines

    return engines.resolve(Settings.of(pytestconfig).engine)


@pytest.fixture(scope="session")
def tensorizer_prompt_embeds_loader(pytestconfig: pytest.Config) -> PromptEmbedsLoader:
    """The loader of --tensorizer-prompt-embeds. Override it in the root conftest to bring your own."""
    from pytest_tensorizer import prompt_embeds

    return prompt_embeds.resolve(Settings.of(pytestconfig).prompt_embeds)


@pytest.fixture(scope="session")
def tensorizer_device(pytestconfig: pytest.Config) -> str:
    """The device for engines, "cpu" or "cuda:N", chosen without touching an accelerator."""
    from pytest_tensorizer import devices

    return devices.choose(Settings.of(pytestconfig).device)


@pytest.fixture
def tensorizer_model(request: pytest.FixtureRequest, tensorizer_models: Callable[[str], Model]) -> Model:
    """A model: tiny llama, or the directory of --tensorizer-model.

    Parametrize it indirectly for others: `@pytest.mark.parametrize("tensorizer_model", ["gpt2"], indirect=True)`.
    """
    return tensorizer_models(getattr(request, "param", "") or "llama")


@pytest.fixture(scope="session")
def tensorizer_models(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Model]:
    """A function from the name of a tiny model to the :class:`~pytest_tensorizer.models.Model`.

    They are made once for a session, with all its workers and clean processes. With --tensorizer-model the only
    model there is comes from that directory, whatever the name.
    """
    from pytest_tensorizer import models, shared

    directory = Settings.of(pytestconfig).model_directory(pytestconfig)
    if directory is not None:
        return lambda name: models.from_directory(directory)
    return models.ModelStore(shared.models_directory(pytestconfig, tmp_path_factory)).get


@pytest.fixture
def tensorizer_hidden_credentials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No `AWS_*` variable, `~/.aws` or `~/.s3cfg` of the user's can be found while the test runs."""
    from pytest_tensorizer.storage import credentials

    with credentials.hidden(directory=tmp_path_factory.getbasetemp()):
        yield


@pytest.fixture(scope="session")
def _tensorizer_s3_service(pytestconfig: pytest.Config) -> Iterator[S3Service]:
    """One S3 service for a pytest process; clean processes use that of the process which started them."""
    from pytest_tensorizer import shared

    with shared.s3_service(pytestconfig) as service:
        yield service


@pytest.fixture
def tensorizer_s3(_tensorizer_s3_service: S3Service) -> Iterator[S3Service]:
    """An S3 endpoint, moto's on 127.0.0.1 unless --tensorizer-s3-endpoint names another.

    While the test runs it is the only one that the code under test can find: its endpoint and credentials stand in
    the `AWS_*` variables, and the user's own are hidden.
    """
    with _tensorizer_s3_service.access():
        yield _tensorizer_s3_service


@pytest.fixture
def tensorizer_bucket(tensorizer_s3: S3Service) -> Iterator[S3Bucket]:
    """A new bucket, deleted with its content after the test."""
    with tensorizer_s3.bucket() as bucket:
        yield bucket


@pytest.fixture
def tensorizer_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Storage]:
    """A function from "local" or "s3" to a storage that is new for this test: a directory, or a bucket."""
    from pytest_tensorizer.storage import LocalStorage

    def storage(name: str) -> Storage:
        if name == "local":
            return LocalStorage(tmp_path)
        if name == "s3":
            bucket: Storage = request.getfixturevalue("tensorizer_bucket")
            return bucket
        raise ValueError(f"there is no storage {name!r}: use 'local' or 's3'")

    return storage


@pytest.fixture
def tensorizer_serialize(
    tensorizer_storage: Callable[[str], Storage], tensorizer_formats: list[Format]
) -> Callable[..., WeightsFile]:
    """A function that serializes a module or a state dict: `serialize(content, format=…, storage=…, **options)`.

    `format` is a name or a format object, "tensorizer" by default; `storage` is "local" or "s3"; `options` go to the
    format. The result has `.uri`, `.load()` and `.load_module(module)`.
    """
    from pytest_tensorizer import formats
    from pytest_tensorizer.checkpoint import WeightsFile

    numbers = itertools.count()

    def serialize(
        content: nn.Module | Mapping[str, Tensor],
        format: str | Format = "tensorizer",
        storage: str = "local",
        **options: Any,
    ) -> WeightsFile:
        if isinstance(format, str):
            named = [known for known in tensorizer_formats if known.name == format]
            format = named[0] if named else formats.resolve(format)
        key = f"weights-{next(numbers)}{format.suffix}"
        return WeightsFile.write(content, format, tensorizer_storage(storage), key, **options)

    return serialize


@pytest.fixture
def tensorizer_checkpoint(
    tensorizer_model: Model, tensorizer_serialize: Callable[..., WeightsFile]
) -> Callable[..., Checkpoint]:
    """A function that writes `tensorizer_model` as a checkpoint: `checkpoint(format=…, storage=…, dtype=…)`.

    The result is what :meth:`Engine.load <pytest_tensorizer.engines.Engine.load>` takes.
    """
    from pytest_tensorizer.checkpoint import Checkpoint

    def checkpoint(
        format: str | Format = "tensorizer",
        storage: str = "local",
        dtype: torch.dtype | None = None,
        model: Model | None = None,
        **options: Any,
    ) -> Checkpoint:
        chosen = model or tensorizer_model
        return Checkpoint(chosen.directory, tensorizer_serialize(chosen.module(dtype), format, storage, **options))

    return checkpoint


@pytest.fixture
def tensorizer_run_isolated() -> Callable[..., Any]:
    """:func:`pytest_tensorizer.process.run_isolated`: call a function in a clean process, with limits."""
    from pytest_tensorizer.process import run_isolated

    return run_isolated
