"""Captured steps: Lightning trains through them as through others, and real batches have the captured shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from tests.support.composing import composed
from trainers.loop.train import build
from trainers.loop.warmup import CapturedSteps, warm_up
from trainers.workload import Shard, TrialModule, load_workload

CPU = torch.device("cpu")
NUM_STEPS = 6
SMALL = {
    "resnet50": ["dataset=shapes", "recipe=resnet50_cpu", "dataset.size=100", "batch_size=16"],
    "ssd": ["dataset=shapes", "recipe=ssd_cpu", "dataset.size=100", "batch_size=8"],
    "maskrcnn": ["dataset=shapes", "recipe=maskrcnn_cpu", "dataset.size=100", "batch_size=4"],
    "ncf": ["dataset=ratings", "recipe=ncf_cpu", "dataset.size=100000"],
}
MORE = ("resnet50", "maskrcnn")
pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step`"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


class Replayed(CapturedSteps):
    """Records no graph: a replay computes the step again, and copies results to the addresses of the first time."""

    num_replays = 0

    def _recorded(self, step: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        with torch.random.fork_rng():
            buffers = [buffer.clone() for buffer in self.buffers]
            loss = step()
            for buffer, before in zip(self.buffers, buffers, strict=True):
                buffer.copy_(before)  # Capturing computes nothing.
        gradients = [parameter.grad for parameter in self._parameters]

        def replay() -> None:
            self.num_replays += 1
            self._drop_gradients()
            loss.copy_(step())
            for gradient, parameter in zip(gradients, self._parameters, strict=True):
                if gradient is not None:
                    gradient.copy_(parameter.grad)
            self._drop_gradients()

        return replay, loss


def trained(
    overrides: list[str], make: Callable[..., CapturedSteps] | None, device: torch.device
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses of the first steps and the state after them."""
    on_gpu = device.type == "cuda"
    config = composed([*overrides, f"gpus={int(on_gpu)}", "precision=bf16"])
    shard, losses = Shard(0, 1, device), list[float]()
    module, data = build(load_workload(config), config, shard, None)
    batch_size = config.device_batch_size()

    class Prepared(pl.Callback):
        def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
            if on_gpu:
                module.captured = make is not None
                module.compile_hot_path()
            capture = make(module, trainer.precision_plugin.train_step_context).capture if make else None
            warm_up(trainer, module, data.example_batches(batch_size, device), evaluate=False, capture=capture)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
            losses.append(float(outputs["loss"]))

    trainer = pl.Trainer(
        accelerator="gpu" if on_gpu else "cpu",
        devices=1,
        precision=config.precision.trainer,  # type: ignore[arg-type]
        max_epochs=1,
        limit_train_batches=NUM_STEPS,
        limit_val_batches=0,
        barebones=True,
        use_distributed_sampler=False,
        callbacks=[],
    )
    trainer.callbacks += [Prepared()]  # type: ignore[attr-defined]
    trainer.fit(module, data.train_loader(batch_size, 1, shard))
    return losses, {name: tensor.clone() for name, tensor in module.state_dict().items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", ["ssd", "ncf", *(pytest.param(model, marks=pytest.mark.exhaustive) for model in MORE)]
)
def test_a_training_by_replays_is_the_usual_one(model: str) -> None:
    overrides, made = [f"model={model}", *SMALL[model]], list[Replayed]()

    def make(module: TrialModule, autocast: Any) -> Replayed:
        made.append(Replayed(module, autocast))
        made[0].buffers = list(module.buffers())
        return made[0]

    usual, replayed = trained(overrides, None, CPU), trained(overrides, make, CPU)
    assert made[0].num_replays >= NUM_STEPS
    assert usual[0] == replayed[0]
    assert all(torch.equal(tensor, replayed[1][name]) for name, tensor in usual[1].items())


@pytest.mark.slow
@pytest.mark.gpu
@on_a_gpu
@pytest.mark.parametrize("model", SMALL)
def test_on_a_gpu_a_training_by_replays_is_the_usual_one(model: str) -> None:
    device = torch.device("cuda", 0)
    overrides = [f"model={model}", *SMALL[model]]
    usual, replayed = (trained(overrides, make, device) for make in (None, CapturedSteps))
    assert usual[0] == pytest.approx(replayed[0], rel=2e-2)
    assert usual[0][0] == pytest.approx(replayed[0][0], rel=1e-3)
