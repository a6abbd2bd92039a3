"""GNMT's learning rate by step, as in MLPerf's reference."""

from __future__ import annotations

from dataclasses import dataclass

WARMUP_START = 0.01  # share of the rate at the first step


@dataclass(frozen=True)
class HalvingSchedule:
    """An exponential warm-up from a hundredth of the rate, then the full rate, then `num_decays` halvings.

    The first halving is at the share `remain` of all `num_steps`; the others follow evenly in the remaining steps.
    """

    learning_rate: float
    warmup_steps: int
    remain: float
    num_decays: int
    num_steps: int

    @property
    def remain_steps(self) -> int:
        return int(self.num_steps * self.remain)

    @property
    def decay_interval(self) -> int:
        return max(1, (self.num_steps - self.remain_steps) // max(1, self.num_decays))

    def at(self, step: int) -> float:
        """Return the rate of a step, counted from 0."""
        if step < self.warmup_steps:
            return float(self.learning_rate * WARMUP_START ** (1 - step / self.warmup_steps))
        if step < self.remain_steps:
            return self.learning_rate
        halvings = min(self.num_decays, (step - self.remain_steps) // self.decay_interval + 1)
        return float(self.learning_rate * 0.5**halvings)
