"""GNMT's learning rate by step, as MLPerf's reference has it."""

from __future__ import annotations

from dataclasses import dataclass

WARMUP_START = 0.01  # share of the rate at the first step


@dataclass(frozen=True)
class HalvingSchedule:
    """An exponential warm-up from a hundredth of the rate, then the rate, then `num_decays` halvings.

    The first halving comes at `remain`, a share of all `num_steps`, and they lie evenly in what is left.
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
        """The rate of a step that is counted from 0."""
        if step < self.warmup_steps:
            return float(self.learning_rate * WARMUP_START ** (1 - step / self.warmup_steps))
        if step < self.remain_steps:
            return self.learning_rate
        halvings = min(self.num_decays, (step - self.remain_steps) // self.decay_interval + 1)
        return float(self.learning_rate * 0.5**halvings)
