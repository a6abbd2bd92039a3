"""How gradients are exchanged changes when they are, not what they are."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.plugins import MixedPrecision
from pytorch_lightning.strategies import DDPStrategy
from torch import nn

from tests.trainers import processes
from trainers.loop import ddp

WIDTH, STEPS = 40, 3  # DDP makes its buckets anew after the first step.


@pytest.mark.parametrize(
    ("asked", "topology", "expected"),
    [
        (None, "NV18", False),
        (None, "PIX", True),
        (None, "SYS", True),
        (None, "none", True),  # processes on a CPU
        (None, "", True),  # not known
        (True, "NV18", True),
        (False, "SYS", False),
    ],
)
def test_gradients_wait_for_the_end_only_where_nvlink_joins_all_gpus(
    monkeypatch: pytest.MonkeyPatch, asked: bool | None, topology: str, expected: bool
) -> None:
    monkeypatch.delenv("NCCL_P2P_DISABLE", raising=False)
    monkeypatch.delenv("NCCL_P2P_LEVEL", raising=False)
    assert ddp.overlaps(asked, topology, 1) is expected


@pytest.mark.parametrize("topology", ["NV18", "SYS", "single"])
@pytest.mark.parametrize("asked", [None, True, False])
def test_on_several_nodes_all_processes_decide_alike_whatever_links_their_own_gpus(
    asked: bool | None, topology: str
) -> None:
    assert ddp.overlaps(asked, topology, 2) is (asked is not False)


@pytest.mark.parametrize(("variable", "value"), [("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "LOC")])
def test_nvlink_that_nccl_may_not_use_is_none(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    assert ddp.overlaps(None, "NV18", 1)


class Layers(pl.LightningModule):
    """With `overflows`, the last process's first loss, and so its gradients, are infinite."""

    def __init__(self, overflows: bool = False) -> None:
        super().__init__()
        self.overflows = overflows
        torch.manual_seed(1 + dist.get_rank())  # the first process's weights are to be everyone's
        self.first = nn.Conv2d(3, WIDTH, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.last = nn.Linear(WIDTH, 1)
        self.last.bias.requires_grad_(False)
        self.seen: list[torch.Tensor] = []

    def on_train_start(self) -> None:
        if isinstance(self.trainer.strategy, ddp.AfterTheStep):
            self.trainer.strategy.share_weights()

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        images = batch * (dist.get_rank() + 1.0)
        infinite = self.overflows and batch_idx == 0 and dist.get_rank() == dist.get_world_size() - 1
        loss: torch.Tensor = self.last(self.first(images).relu().mean(dim=(2, 3))).square().mean()
        return loss * (torch.inf if infinite else 1.0)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.seen += [parameter.grad.clone() for parameter in self.parameters() if parameter.grad is not None]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return torch.optim.SGD(trained, lr=0.1, momentum=0.9)


def fit(strategy: DDPStrategy, accelerator: str, plugins: list[MixedPrecision] | None = None) -> Layers:
    module = Layers(overflows=bool(plugins))
    trainer = pl.Trainer(
        strategy=strategy, accelerator=accelerator, devices=dist.get_world_size(), max_epochs=1, barebones=True,
        use_distributed_sampler=False, plugins=plugins,
    )  # fmt: skip
    trainer.fit(module, torch.linspace(0, 1, STEPS * 2 * 3 * 64).view(STEPS, 2, 3, 8, 8))  # type: ignore[arg-type]
    return module


def trained(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    tensors, scales = {}, {}
    for name, strategy in (("overlapped", ddp.Overlapped()), ("after", ddp.AfterTheStep())):
        module = fit(strategy, "cpu")
        tensors[name] = module.seen + [parameter.detach() for parameter in module.parameters()]
        plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=16.0))
        module = fit(type(strategy)(), "cpu", [plugin])
        tensors[f"{name}, scaled"] = [parameter.detach() for parameter in module.parameters()]
        scales[name] = plugin.state_dict()["scale"]
    torch.save((tensors, scales), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_the_same_training_whether_gradients_leave_early_or_late(tmp_path: Path) -> None:
    processes.ranks(trained, str(tmp_path))
    (first, scales), (second, others) = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert len(first["after"]) == 3 * STEPS + 4
    torch.testing.assert_close(first["after"], first["overlapped"])
    # A step that overflows on one process is skipped on both, and both scale by half from then on.
    assert scales == others == {"overlapped": 8.0, "after": 8.0}
    assert all(tensor.isfinite().all() for tensor in first["after, scaled"])
    torch.testing.assert_close(first["after, scaled"], first["overlapped, scaled"], rtol=1e-2, atol=1e-3)


def test_a_parameter_without_a_gradient_is_named(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        gradients = ddp.Gradients(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
        with pytest.raises(RuntimeError, match=r"0\.weight took no part in the loss"):
            gradients.average()
    finally:
        dist.destroy_process_group()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("strategy", [ddp.Overlapped, ddp.AfterTheStep])
def test_gradients_stay_on_the_stream_that_trains(strategy: type[DDPStrategy], tmp_path: Path) -> None:
    dist.init_process_group(init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            fit(strategy(), "gpu")
    finally:
        dist.destroy_process_group()
    assert not [warning for warning in said if "AccumulateGrad" in str(warning.message)]
