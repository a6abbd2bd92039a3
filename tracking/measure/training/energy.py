"""Energy from NVML's millijoule counter, read only at the edges of the timed window."""

from __future__ import annotations

import math

import torch

from tracking.measure.training.ranks import Ranks


class EnergyMeter:
    """The energy of this rank's GPU since `start`; unknown without NVML or its counter (CPU, MIG)."""

    def __init__(self, device: torch.device, ranks: Ranks) -> None:
        self._device = device
        self._ranks = ranks
        self._start_joules: float | None = None
        self.earlier_joules = 0.0  # joules of all ranks in earlier attempts; NaN if unknown

    def start(self) -> None:
        self._start_joules = self._joules()

    def total(self, key: str) -> dict[str, float]:
        """Joules of all ranks in this and earlier attempts under `key`; {} if a rank has no counter. Collective."""
        joules = self._ranks.total(self.rank_joules()) + self.earlier_joules
        return {} if math.isnan(joules) else {key: joules}

    def rank_joules(self) -> float:
        """Joules of this rank in this attempt; NaN without a counter. Reading it takes some milliseconds."""
        joules = self._joules()
        return joules - self._start_joules if joules is not None and self._start_joules is not None else math.nan

    def _joules(self) -> float | None:
        if self._device.type != "cuda":
            return None
        try:
            import pynvml
        except ImportError:
            return None
        try:
            pynvml.nvmlInit()
            uuid = torch.cuda.get_device_properties(self._device).uuid
            handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3
        except pynvml.NVMLError:
            return None
