"""A small VGG, standing still at a step until it is killed, or slow; its accuracy is its epoch's, and its weights leave
a digest."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import torch

from tests.workloads.small_vgg import SmallVgg
from trainers.models import vgg
from trainers.workload import Batch, Workload


class Pausing(SmallVgg):
    """Stands still before step $PAUSE_AT_STEP, if that is set: steps are counted from 1.

    With $STEP_SEC each step takes that long, and each process notes it in a file of the working directory.
    """

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        if sec := os.environ.get("STEP_SEC"):
            with Path(f"steps.{self.global_rank}").open("a") as file:
                file.write(f"{self.trainer.global_step + 1}\n")
            time.sleep(float(sec))
        if str(self.trainer.global_step + 1) == os.environ.get("PAUSE_AT_STEP"):
            time.sleep(86_400)
        return super().training_step(batch, batch_idx)

    def metrics(self) -> dict[str, float]:
        metrics = super().metrics()
        return {**metrics, "accuracy": 0.1 * (self.current_epoch + 1), "right": metrics["accuracy"]}

    def write_report(self, run_dir: Path) -> None:
        digest = hashlib.sha256()
        for tensor in self.state_dict().values():
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        (run_dir / "weights.sha256").write_text(digest.hexdigest())


WORKLOAD = Workload(module=Pausing, data=vgg.WORKLOAD.data)
