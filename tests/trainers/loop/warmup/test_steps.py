"""Warming up leaves no trace, and everything is measured on the model that it left alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist

from conf.schema import ConfigError
from trainers.data.digits import digits
from trainers.data.images import ImageData
from trainers.loop.off_the_clock import evaluate_test
from trainers.loop.warmup import steps as warmup
from trainers.models.vgg import Vgg
from trainers.workload import Shard

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
]


@pytest.fixture(scope="module", autouse=True)
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Recorder(pl.Callback):
    """Runs `before` where a run warms up, and keeps what the training then did."""

    def __init__(self, before: Any) -> None:
        self.before = before
        self.losses: list[float] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.before(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
        self.losses.append(float(outputs["loss"]))


def trained(before: Any, precision: str = "32-true", accelerator: str = "cpu") -> tuple[list[float], dict[str, Any]]:
    """Losses of four steps with augmentation (so that random numbers matter), and the module's final state."""
    pl.seed_everything(3, verbose=False)
    data: ImageData = digits()
    module = Vgg(data, learning_rate=1e-3, weight_decay=0.0, epochs=[0], augment_epochs=1)
    device = torch.device("cuda", 0) if accelerator == "gpu" else torch.device("cpu")
    recorder = Recorder(lambda trainer: before(trainer, module, data.example_batches(16, device)))
    trainer = pl.Trainer(
        accelerator=accelerator,
        devices=1,
        precision=precision,  # type: ignore[arg-type]
        max_epochs=1,
        limit_train_batches=4,
        limit_val_batches=0,
        barebones=True,
        use_distributed_sampler=False,
        callbacks=[recorder],
    )
    trainer.fit(module, data.train_loader(16, 1, Shard(0, 1, device)))
    return recorder.losses, {name: tensor.clone() for name, tensor in module.state_dict().items()}


def nothing(trainer: Any, module: Any, batch: Any) -> None:
    """No warm-up."""


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_training_after_a_warm_up_is_the_same_to_the_last_bit(precision: str) -> None:
    losses, state = trained(nothing, precision)
    warm_losses, warm_state = trained(warmup.warm_up, precision)
    assert warm_losses == losses
    for name, tensor in state.items():
        assert torch.equal(tensor, warm_state[name]), name


@pytest.mark.slow
def test_without_restoring_it_would_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: a warm-up that keeps what it did changes the losses."""
    from contextlib import nullcontext

    monkeypatch.setattr(warmup, "untouched", lambda trainer, module: nullcontext())

    def spoil(trainer: Any, module: Any, batch: Any) -> None:
        warmup.warm_up(trainer, module, batch)
        module.train()

    assert trained(spoil)[0] != trained(nothing)[0]


@pytest.mark.slow
def test_a_target_that_no_evaluation_would_tell_is_refused_before_the_clock() -> None:
    def misspelt(trainer: pl.Trainer, module: Any, batch: Any) -> None:
        warmup.warm_up(trainer, module, batch, targets=["acuracy"])

    with pytest.raises(
        ConfigError, match=r"acuracy is not a metric that metrics\(\) of \w+ returns; allowed: accuracy, loss"
    ):
        trained(misspelt)


@pytest.mark.slow
def test_optimizer_and_gradients_are_as_before() -> None:
    seen = {}

    def look(trainer: pl.Trainer, module: Any, batch: Any) -> None:
        warmup.warm_up(trainer, module, batch)
        seen["state"] = len(trainer.optimizers[0].state)
        seen["grads"] = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
        seen["training"] = module.training

    trained(look)
    assert seen == {"state": 0, "grads": [], "training": True}


@pytest.mark.parametrize("large", [False, True])
def test_a_resumed_optimizers_state_is_restored_in_place(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second state on the device, of 18 GB for 8 billion parameters, may not fit there."""
    places: list[bool] = []
    copies = warmup.copied
    monkeypatch.setattr(warmup, "LARGE_BYTES", 0 if large else 2**30)

    def noted(tensor: torch.Tensor, far: bool) -> torch.Tensor:
        places.append(far)
        return copies(tensor, far)

    monkeypatch.setattr(warmup, "copied", noted)
    module: Any = torch.nn.Linear(3, 2)
    module.device = torch.device("cpu")
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    plugin = SimpleNamespace(state_dict=dict, load_state_dict=lambda state: None)
    trainer: Any = SimpleNamespace(optimizers=[optimizer], precision_plugin=plugin)

    def step() -> None:
        module(torch.randn(4, 3)).sum().backward()
        optimizer.step()

    step()
    before = optimizer.state_dict()["state"]
    values = copy.deepcopy(before)
    with warmup.untouched(trainer, module):
        step()
        optimizer.param_groups[0]["lr"] = 0.2
        assert not torch.equal(before[0]["exp_avg"], values[0]["exp_avg"])
    after = optimizer.state_dict()
    assert [group["lr"] for group in after["param_groups"]] == [0.1]
    for number, slots in values.items():
        assert slots.keys() == after["state"][number].keys()
        for name, value in slots.items():
            assert torch.equal(after["state"][number][name], value), name
            assert after["state"][number][name] is before[number][name], f"{name} is another tensor"
    assert set(places) == {large}


@pytest.mark.slow
def test_an_evaluation_warms_up_twice_where_its_cuda_graph_is_recorded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    evaluates = Vgg.validation_step
    monkeypatch.setattr(
        Vgg, "validation_step", lambda module, *given: (calls.append(module.training), evaluates(module, *given))[1]
    )
    trained(warmup.warm_up)
    assert calls == [False, False]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["warm-up", "test set"])
def test_each_part_is_behind_an_evaluation_in_the_mode_that_it_was_in(what: str) -> None:
    """A profile comes behind the test set's, and is of steps that train; a module may keep a part from training."""
    modes = []

    def look(trainer: pl.Trainer, module: Any, batch: Any) -> None:
        module.net[1].eval()
        modes.append([part.training for part in module.modules()])
        if what == "warm-up":
            warmup.warm_up(trainer, module, batch)
        else:
            loader = digits().test_loader(16, Shard(0, 1, torch.device("cpu")))
            assert loader is not None
            assert evaluate_test(trainer, module, loader).keys() == {"test/accuracy", "test/loss"}
        modes.append([part.training for part in module.modules()])

    trained(look)
    assert modes[0] == modes[1]
    assert {True, False} == set(modes[0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_on_a_gpu_the_state_is_untouched(precision: str) -> None:
    def look(trainer: pl.Trainer, module: Any, batch: Any) -> None:
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        random = torch.cuda.get_rng_state(), torch.get_rng_state()
        scaler = dict(trainer.precision_plugin.state_dict())
        warmup.warm_up(trainer, module, batch)
        assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
        assert torch.equal(torch.cuda.get_rng_state(), random[0])
        assert torch.equal(torch.get_rng_state(), random[1])
        assert dict(trainer.precision_plugin.state_dict()) == scaler
        assert not trainer.optimizers[0].state

    trained(look, precision, "gpu")


@pytest.mark.slow
def test_model_flops_are_those_of_the_layers() -> None:
    counted = []

    def count(trainer: pl.Trainer, module: Any, batch: Any) -> None:
        counted.append(warmup.flops_per_sample(trainer, module, batch[0]))

    trained(count)
    # Multiply-adds of the 8x8 network's layers; a training step does each forward, and twice backward, but the
    # first convolution has no gradient to pass on to its input.
    first = 64 * 9 * 32
    convolutions = 64 * 9 * (32 * 32 + 32 * 64 + 64 * 64) + 16 * 9 * (64 * 128 + 128 * 128 + 128 * 256 + 2 * 256 * 256)
    dense = 1024 * 512 + 512 * 512 + 512 * 10
    # The counter also sees the few products of the augmentation.
    assert counted[0] == pytest.approx(2 * (3 * (convolutions + dense) + 2 * first), rel=1e-6)
