"""Captured steps: Lightning trains through them as through others, and real batches have the captured shapes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins import MixedPrecision
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.support.composing import composed
from trainers.loop.train import build
from trainers.loop.warmup import CapturedSteps, captures, warm_up
from trainers.workload import Shard, load_workload

CPU = torch.device("cpu")
NUM_STEPS = 6
SMALL = {
    "resnet50": ["dataset=shapes", "recipe=resnet50_cpu", "dataset.size=100", "batch_size=16"],
    "ssd": ["dataset=shapes", "recipe=ssd_cpu", "dataset.size=100", "batch_size=2"],
    "maskrcnn": ["dataset=shapes", "recipe=maskrcnn_cpu", "dataset.size=100", "batch_size=4"],
    "ncf": ["dataset=ratings", "recipe=ncf_cpu", "dataset.size=100000"],
    "gnmt": [
        "dataset=numbers", "recipe=gnmt_cpu", "dataset.size=2000", "batch_size=256", "model.hparams.width=64",
        "model.hparams.num_shapes=2",
    ],
    "gpt": [
        "dataset=grammar", "recipe=gpt_cpu", "batch_size=512", "dataset.train_tokens=6400",
        "dataset.validation_tokens=640", "model.hparams.steps=10", "model.hparams.micro_batch_size=128",
    ],
}  # fmt: skip
MORE = ("resnet50", "maskrcnn")
pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step`"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


class Replayed(CapturedSteps):
    """Records no graph: a replay computes the step again, and copies results to the addresses of the first time."""

    num_replays = 0

    def _rehearse(self, step: Callable[[], torch.Tensor]) -> None:
        step()

    def _recorded(self, step: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        assert all(parameter.grad is None for parameter in self._parameters)
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


class Operations(CapturedSteps):
    """Records PyTorch's operations, as a CUDA graph its kernels: a replay runs them, and no line of Python."""

    def _rehearse(self, step: Callable[[], torch.Tensor]) -> None:
        step()

    def _recorded(self, step: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        with Recorder() as recorder:
            loss = step()
        return recorder.replay, loss


class Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Callable[..., Any], Any, Any, list[torch.Tensor]]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **kwargs or {})
        given = {tensor.untyped_storage().data_ptr() for tensor in tensors_of((args, kwargs))}
        made = [tensor for tensor in tensors_of(result) if tensor.untyped_storage().data_ptr() not in given]
        self.calls.append((function, args, kwargs or {}, made))  # Views and changed tensors are not made.
        return result

    def replay(self) -> None:
        with torch._C._AutoDispatchBelowAutograd():
            for function, args, kwargs, made in self.calls:
                values = tensors_of(function(*args, **kwargs))
                for tensor, value in zip(made, values if made else (), strict=True):
                    tensor.copy_(value)


def tensors_of(values: Any) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def trained(
    overrides: list[str], make: Callable[..., CapturedSteps] | None, device: torch.device, precision: str = "bf16",
    scaler: torch.amp.GradScaler | None = None,
) -> tuple[list[float], dict[str, torch.Tensor]]:  # fmt: skip
    """Losses of the first steps and the state after them; with `scaler` in fp16."""
    on_gpu = device.type == "cuda"
    config = composed([*overrides, f"gpus={int(on_gpu)}", f"precision={precision}"])
    shard, losses = Shard(0, 1, device), list[float]()
    module, data = build(load_workload(config), config, shard, None)
    batch_size = config.device_batch_size()

    class Prepared(pl.Callback):
        def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
            if on_gpu:
                module.captured = make is not None
                module.compile_hot_path()
            autocast, scaler = trainer.precision_plugin.train_step_context, trainer.precision_plugin.scaler
            capture = make(module, autocast, scaler and scaler.scale).capture if make else None
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
    if scaler:  # Lightning has none on a CPU.
        trainer.strategy.precision_plugin = MixedPrecision("16-mixed", device.type, scaler)
    trainer.fit(module, data.train_loader(batch_size, 1, shard))
    return losses, {name: tensor.clone() for name, tensor in module.state_dict().items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", ["ssd", "ncf", "gnmt", "gpt", *(pytest.param(model, marks=pytest.mark.exhaustive) for model in MORE)]
)
def test_a_training_by_replays_is_the_usual_one(model: str) -> None:
    overrides, made = [f"model={model}", *SMALL[model]], list[Replayed]()

    def make(*arguments: Any) -> Replayed:
        module = arguments[0]
        made.append(Replayed(*arguments))
        made[0].buffers = list(module.buffers())
        return made[0]

    usual, replayed = trained(overrides, None, CPU), trained(overrides, make, CPU)
    assert made[0].num_replays >= NUM_STEPS
    assert model != "gnmt" or len(made[0]._captured) == 2
    assert usual[0] == replayed[0]
    assert all(torch.equal(tensor, replayed[1][name]) for name, tensor in usual[1].items())


@pytest.mark.slow
def test_each_replay_reads_the_scale_of_fp16_also_after_an_overflow() -> None:
    first, overrides = 2.0**22, ["model=ncf", *SMALL["ncf"]]
    scalers = [torch.amp.GradScaler("cpu", init_scale=first) for _ in range(2)]
    usual, replayed = (
        trained(overrides, make, CPU, scaler=scaler) for make, scaler in zip((None, Operations), scalers, strict=True)
    )
    assert first / 2**NUM_STEPS < scalers[0].get_scale() == scalers[1].get_scale() < first  # Some steps overflow.
    assert usual[0] == replayed[0]
    assert all(torch.equal(tensor, replayed[1][name]) for name, tensor in usual[1].items())


@pytest.mark.parametrize(
    ("options", "alone", "expected"),
    [
        (["precision=fp16"], True, True),
        (["precision=tf32"], True, True),
        (["precision=fp16"], False, False),
        (["model.hparams.graph_steps=false"], True, False),
    ],
)
def test_gnmt_s_steps_are_captured_if_its_recipe_asks_for_it(options: list[str], alone: bool, expected: bool) -> None:
    config = composed(["model=gnmt", "gpus=1", "dataset.size=100", *options])
    module: Any = build(load_workload(config), config, Shard(0, 1, CPU), None)[0]
    on_gpu: Any = SimpleNamespace(same_kernels=module.same_kernels, device=torch.device("cuda", 0))
    assert captures(config, on_gpu, alone) == expected


@pytest.mark.slow
@pytest.mark.gpu
@on_a_gpu
@pytest.mark.parametrize(
    ("model", "precision"), [*((model, "bf16") for model in SMALL), ("gnmt", "fp16"), ("gpt", "fp8")]
)
def test_on_a_gpu_a_training_by_replays_is_the_usual_one(model: str, precision: str) -> None:
    device = torch.device("cuda", 0)
    overrides = [f"model={model}", *SMALL[model]]
    usual, replayed = (trained(overrides, make, device, precision) for make in (None, CapturedSteps))
    assert usual[0] == pytest.approx(replayed[0], rel=2e-2)
    assert usual[0][0] == pytest.approx(replayed[0][0], rel=1e-3)
