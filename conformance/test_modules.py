"""A module that is saved and loaded into another of the same architecture, whose values are other ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_tensorizer.formats import Format
from pytest_tensorizer.identity import assert_identical
from pytest_tensorizer.suite.check import check
from pytest_tensorizer.suite.skips import not_claimed


class Net(nn.Module):
    """One of each: trainable and frozen parameters, buffers of three kinds, a shared layer and a tied weight."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(11, 8)
            self.frozen = nn.Linear(8, 8)
            self.norm = nn.BatchNorm1d(8)
            self.layer = nn.Linear(8, 8)
            self.head = nn.Linear(8, 11, bias=False)
            self.register_buffer("scale", torch.rand(8))
            self.register_buffer("scratch", torch.rand(8), persistent=False)
            self.register_buffer("steps", torch.randint(0, 70_000, (3,)))
        self.frozen.requires_grad_(False)
        self.same_layer = self.layer
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.norm(self.frozen(self.embedding(tokens)))
        result: Tensor = self.head(self.same_layer(hidden) * self.scale)
        return result


Load = Callable[..., tuple[Net, Net]]


@pytest.fixture
def load(tensorizer_format: Format, tmp_path: Path) -> Load:
    """Save a `Net` and load it into one of another seed; `before` may look at the target before that."""
    if not hasattr(tensorizer_format, "save_module"):
        not_claimed(tensorizer_format.name, "modules")

    def load(before: Callable[[Net], Any] = lambda target: None) -> tuple[Net, Net]:
        source, target = Net(1), Net(2)
        path = tmp_path / f"module{tensorizer_format.suffix}"
        tensorizer_format.save_module(source, path)
        before(target)
        tensorizer_format.load_module(target, path)
        return target, source

    return load


def _persistent(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in module.state_dict().items()}


@check("modules/weights", subject="format")
def test_weights(load: Load) -> None:
    """Every parameter and persistent buffer has, under each of its names, the bits of the original."""
    target, source = load()
    names = _persistent(source)
    found = {name: tensor for name, tensor in _tensors(target).items() if name in names}
    assert_identical(found, names, facets={"bits", "dtype", "shape", "missing", "extra"})


@check("modules/kinds", subject="format")
def test_kinds(load: Load) -> None:
    """Parameters stay parameters, and buffers stay buffers."""
    target, source = load()
    assert_identical(target, source, facets={"kind"})


@check("modules/requires-grad", subject="format")
def test_requires_grad(load: Load) -> None:
    """Loading does not make a frozen parameter trainable, nor a buffer require a gradient."""
    target, source = load()
    assert_identical(target, source, facets={"requires_grad"})


@check("modules/persistence", subject="format")
def test_persistence(load: Load) -> None:
    """A buffer that is not part of the state dict does not become part of it."""
    target, source = load()
    assert_identical(target, source, facets={"persistence"})


@check("modules/ties", subject="format")
def test_ties(load: Load) -> None:
    """Tied weights and shared layers still share their memory after loading."""
    target, source = load()
    assert_identical(target, source, facets={"ties"})


@check("modules/aliases", subject="format")
def test_aliases(load: Load) -> None:
    """A reference to a parameter that was taken before loading sees the loaded values.

    Engines, optimizers and fused kernels hold such references. If they go stale, every weight compares equal and
    every output is wrong.
    """
    held: dict[str, Tensor] = {}
    _, source = load(lambda target: held.update(target.named_parameters()))
    expected = dict(source.named_parameters())
    assert_identical({n: t.detach() for n, t in held.items()}, {n: t.detach() for n, t in expected.items()})


@check("modules/optimizer", subject="format")
def test_optimizer(load: Load) -> None:
    """An optimizer made before loading trains the weights that the model runs on."""
    optimizers: list[torch.optim.Optimizer] = []
    target, _ = load(lambda net: optimizers.append(torch.optim.SGD(net.layer.parameters(), lr=1.0)))
    before = target.layer.weight.detach().clone()
    target.layer(torch.ones(1, 8)).sum().backward()
    optimizers[0].step()
    after = target.layer.weight.detach()
    assert not torch.equal(after, before), "a step of the optimizer left the weight that it was made for as it was"


@check("modules/forward", subject="format")
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_forward(load: Load, mode: str) -> None:
    """The loaded module computes, with gradients enabled, what the original does."""
    target, source = load()
    tokens = torch.arange(10)
    with torch.enable_grad():
        outputs = [module.train(mode == "train")(tokens) for module in (target, source)]
    assert_identical(outputs[0].detach(), outputs[1].detach(), name="output")


@check("modules/source-untouched", subject="format")
def test_source_untouched(load: Load) -> None:
    """Saving a module changes nothing in it."""
    _, source = load()
    assert_identical(source, Net(1))


@check("modules/missing-key", subject="format")
def test_missing_key(tensorizer_format: Format, tmp_path: Path) -> None:
    """A parameter that the module has and the file lacks is an error: it would keep its random values."""
    path = _saved_without(tensorizer_format, tmp_path, "bias")
    target = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(Exception, match="bias"):
        tensorizer_format.load_module(target, path)


@check("modules/wrong-shape", subject="format")
def test_wrong_shape(tensorizer_format: Format, tmp_path: Path) -> None:
    """A tensor whose shape is not that of the module's is an error: it would silently be another model."""
    path = _saved_without(tensorizer_format, tmp_path, None)
    with pytest.raises(Exception, match=r"(?i)size|shape|weight"):
        tensorizer_format.load_module(nn.Sequential(nn.Linear(5, 4)), path)


def _saved_without(format: Format, directory: Path, name: str | None) -> Path:
    if not hasattr(format, "save_module"):
        not_claimed(format.name, "modules")
    module = nn.Sequential(nn.Linear(4, 4))
    if name is not None:
        module[0].register_parameter(name, None)
    path = directory / f"module{format.suffix}"
    format.save_module(module, path)
    return path


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return {name: tensor.detach() for name, tensor in named}
