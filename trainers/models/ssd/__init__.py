"""SSD300 with a ResNet-34 backbone, as in MLPerf."""

from __future__ import annotations

from trainers.models.ssd.module import WORKLOAD

__all__ = ["WORKLOAD"]
