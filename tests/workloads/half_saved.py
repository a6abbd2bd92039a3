"""A small VGG, whose second process cannot say its weights once it trains."""

from __future__ import annotations

from typing import Any

from tests.workloads.small_vgg import SmallVgg
from trainers.models import vgg
from trainers.workload import Workload


class HalfSaved(SmallVgg):
    def state_dict(self, *args: Any, **options: Any) -> dict[str, Any]:
        if self._trainer is not None and self.global_rank == 1 and self.trainer.global_step:
            raise RuntimeError("an odd buffer")
        return super().state_dict(*args, **options)


WORKLOAD = Workload(module=HalfSaved, data=vgg.WORKLOAD.data)
