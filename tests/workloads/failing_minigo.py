"""MiniGo whose third generation fails for as long as the file that the variable MENDED names is missing."""

from __future__ import annotations

import os
from pathlib import Path

from trainers.data.selfplay import SelfPlayData
from trainers.models.minigo.module import MiniGo
from trainers.workload import Workload


class FailingMiniGo(MiniGo):
    def on_train_epoch_start(self) -> None:
        if self.current_epoch == 2 and not Path(os.environ["MENDED"]).exists():
            raise RuntimeError("the third generation")
        super().on_train_epoch_start()


WORKLOAD = Workload(module=FailingMiniGo, data={"selfplay": SelfPlayData}, unit="positions")
