"""Energy from NVML's counter of millijoules, read at the edges of the timed window only."""

from __future__ import annotations

import math

import torch

from tracking.measure.training.ranks import Ranks


class EnergyMeter:
    """The energy of this rank's GPU since `start`. Silent where NVML or the counter cannot be had (CPU, MIG)."""

    def __init__(self, device: torch.device, ranks: Ranks) -> None:
        self._device = device
        self._ranks = ranks
        self._begin: float | None = None
        self.before = 0.0  # Joules of all ranks in earlier attempts; NaN where they are not known.

    def start(self) -> None:
        self._begin = self._joules()

    def total(self, key: str) -> dict[str, float]:
        """Joules of all ranks since `start`, and before, under `key`; empty where any has none. A collective call."""
        now = self._joules()
        used = now - self._begin if now is not None and self._begin is not None else float("nan")
        joules = self._ranks.total(used) + self.before
        return {} if math.isnan(joules) else {key: joules}

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
