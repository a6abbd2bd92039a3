"""The tiny workload, whose accuracy is the highest after its second epoch; $EVALUATED gets the weights of each."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from tests.workloads import tiny
from trainers.workload import Workload

ACCURACIES = (0.2, 0.6, 0.4, 0.5)


class Peaking(tiny.Tiny):
    def metrics(self) -> dict[str, float]:
        super().metrics()
        if self.current_epoch == len(ACCURACIES):
            return {"accuracy": 0.0}  # on the test set, when all epochs are over
        if self.trainer.global_step and "EVALUATED" in os.environ:
            torch.save(self.state_dict(), Path(os.environ["EVALUATED"]) / f"{self.current_epoch + 1}.pt")
        return {"accuracy": ACCURACIES[self.current_epoch]}


WORKLOAD = Workload(module=Peaking, data=tiny.WORKLOAD.data)
