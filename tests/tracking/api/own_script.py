"""A Lightning script as a user has one: python own_script.py '{"trial": {...}, "trainer": {...}, ...}'.

`trial` are arguments of TimeTrial, `trainer` of the Trainer. `slow` seconds are slept in each step, `fails` names the
hook in which it raises, or "rank 1"; `manual` optimises by hand, `endless` streams its data, `streamed` so many of
them, without saying how many, `validates: false` has no validation. `meshed: [d, t]` divides the data over d groups of
t processes each, which see the same batches; the parameters are sharded over the groups. `deepspeed` is DeepSpeed's
stage, on CPUs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy, DeepSpeedStrategy, ModelParallelStrategy
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tracking.lightning import TimeTrial

NUM_TRAIN, NUM_VAL, BATCH = 96, 32, 8


class Line(pl.LightningModule):
    """Learns y = x in no time."""

    def __init__(self, slow: float = 0.0, fails: str = "", manual: bool = False, meshed: Sequence[int] = ()) -> None:
        super().__init__()
        self.meshed = meshed
        self.automatic_optimization = not manual
        self.layer = torch.nn.Linear(1, 1)
        self.slow, self.fails = slow, fails

    def setup(self, stage: str) -> None:
        if self.fails == "setup":
            raise RuntimeError("no such file: words.txt")

    def configure_model(self) -> None:
        if self.meshed:
            fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor | None:
        time.sleep(self.slow)
        if self.fails == "rank 1" and self.global_rank == 1 and self.global_step == 3:
            raise ValueError("a bad word in shard 3")
        if self.fails == "step" and self.global_step == 3:
            raise MemoryError("DefaultCPUAllocator: can't allocate memory")
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("train_loss", loss)
        if self.automatic_optimization:
            return loss
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return None

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.3)


class DeepSpeedOnCpu(DeepSpeedStrategy):
    """DeepSpeed with its own CPU accelerator; Lightning would refuse what is no GPU."""

    @property
    def root_device(self) -> torch.device:
        return torch.device("cpu:0")

    def setup_environment(self) -> None:
        DDPStrategy.setup_environment(self)

    def setup_distributed(self) -> None:
        self.set_world_ranks()
        self._init_deepspeed_distributed()


class Stream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(self.num_samples):
            x = torch.rand(1)
            yield x, x


def loaders(endless: bool = False, validates: bool = True, streamed: int = 0) -> list[DataLoader[Any] | None]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(NUM_TRAIN + NUM_VAL, 1, generator=generator)
    num_streamed = sys.maxsize if endless else streamed
    train: Any = Stream(num_streamed) if num_streamed else TensorDataset(x[:NUM_TRAIN], x[:NUM_TRAIN])
    val = DataLoader(TensorDataset(x[NUM_TRAIN:], x[NUM_TRAIN:]), batch_size=BATCH) if validates else None
    return [DataLoader(train, batch_size=BATCH), val]


def trainer(trial: TimeTrial, **options: Any) -> pl.Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    return pl.Trainer(callbacks=[trial], **{"accelerator": "cpu", "logger": False} | quiet | options)


def main(asked: dict[str, Any]) -> None:
    pl.seed_everything(1, verbose=False)
    meshed = asked.get("meshed", ())
    module = Line(asked.get("slow", 0.0), asked.get("fails", ""), asked.get("manual", False), meshed)
    strategy: dict[str, Any] = {}
    if meshed:
        strategy = {"strategy": ModelParallelStrategy(*meshed, process_group_backend="gloo")}
    elif stage := asked.get("deepspeed"):
        strategy = {"strategy": DeepSpeedOnCpu(stage=stage, process_group_backend="gloo")}
    fitting = trainer(TimeTrial(**asked["trial"]), **asked["trainer"], **strategy)
    print("fitting", flush=True)
    fitting.fit(module, *loaders(asked.get("endless", False), asked.get("validates", True)))
    print("fitted", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
