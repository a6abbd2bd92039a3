"""How gradients are exchanged changes when they are, not what they are."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from torch import nn

from trainers import ddp

WIDTH, STEPS = 600, 3  # a layer fills a bucket of its own; buckets are made anew after the first step


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
    assert ddp.overlaps(asked, topology) is expected


@pytest.mark.parametrize(("variable", "value"), [("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "LOC")])
def test_nvlink_that_nccl_may_not_use_is_none(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    assert ddp.overlaps(None, "NV18")


def exchanged(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    found = {}
    for overlap in (True, False):
        torch.manual_seed(1)
        model: Any = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        model = nn.parallel.DistributedDataParallel(model, **ddp.options(overlap))
        for step in range(STEPS):
            model.zero_grad()
            model(torch.full((2, WIDTH), rank + step + 1.0)).square().mean().backward()
        buckets = model._get_ddp_logging_data()["rebuilt_bucket_sizes"]
        found[overlap] = ([one.grad.clone() for one in model.parameters()], len(buckets.split(",")))
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_the_same_gradients_in_several_buckets_or_in_one(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(exchanged, (str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    (overlapped, several), (after, one) = first[True], first[False]
    torch.testing.assert_close(overlapped, after)
    assert several > 1
    assert one == 1


class Layer(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.layer(batch).mean()  # type: ignore[no-any-return]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_gradients_stay_on_the_stream_that_trains() -> None:
    strategy = ddp.OnOneStream(**ddp.options(False))
    trainer = pl.Trainer(strategy=strategy, accelerator="gpu", devices=1, max_epochs=1, barebones=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer.fit(Layer(), torch.ones(3, 2, 8))  # type: ignore[arg-type]
    dist.destroy_process_group()
    assert not [one for one in said if "AccumulateGrad" in str(one.message)]
