"""The tiny workload with `self.log` of every kind; `name` is what a value of its steps is logged as."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.workloads import tiny
from trainers.data.images import ImageData
from trainers.workload import Batch, Workload


class Logging(tiny.Tiny):
    """Logs values that follow from step, epoch and rank alone, so a test can compute the expected ones."""

    def __init__(self, data: ImageData, learning_rate: float, weight_decay: float, name: str = "step/number") -> None:
        super().__init__(data, learning_rate, weight_decay)
        self.name = name

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        number = self.trainer.global_step + 1
        self.log(self.name, number, prog_bar=True)
        rank = torch.tensor(dist.get_rank(), device=self.device)
        self.log("step/rank", rank)
        self.log("step/mean_rank", rank, sync_dist=True)
        self.log("step/last_rank", rank, sync_dist=True, reduce_fx="max")
        # The tensor is overwritten, as the replay of a CUDA graph overwrites its own.
        kept = torch.tensor([float(number)], device=self.device)
        self.log("step/tensor", kept, on_epoch=True, batch_size=1)
        kept.zero_()
        self.log("step/samples", float(batch["num_samples"]), on_step=False, on_epoch=True, reduce_fx=torch.sum)
        self.log("step/dropped", 1.0, logger=False)
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("valid/samples", batch["num_samples"], reduce_fx="sum", sync_dist=True)
        super().validation_step(batch, batch_idx)

    def on_validation_epoch_end(self) -> None:
        self.log_dict({"valid/epoch": self.current_epoch + 1, "valid/rank": dist.get_rank()})

    def metrics(self) -> dict[str, float]:
        """With a count that is not added up over the processes."""
        return super().metrics() | {"own_count": float(100 + dist.get_rank())}

    def on_train_epoch_end(self) -> None:
        self.log("after/epoch", self.current_epoch + 1)


WORKLOAD = Workload(module=Logging, data=tiny.WORKLOAD.data)
