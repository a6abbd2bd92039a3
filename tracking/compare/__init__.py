"""What runs say about each other: groups of repeats, means with their errors, tests, confounding, differences and the
gate.

The arithmetic is pure, and has its formulas' sources beside it. It draws nothing and prints nothing.
"""

from __future__ import annotations

from tracking.compare import confounding, diff, estimates, gate, grouping
from tracking.compare.estimates import QUANTITIES, RATIOS, Comparison, Estimate, Quantity, estimate, speed_up
from tracking.compare.grouping import DEVICES, Setting, Task, is_stack
from tracking.compare.statistics import mean_and_standard_error, t_test

__all__ = [
    "DEVICES",
    "QUANTITIES",
    "RATIOS",
    "Comparison",
    "Estimate",
    "Quantity",
    "Setting",
    "Task",
    "confounding",
    "diff",
    "estimate",
    "estimates",
    "gate",
    "grouping",
    "is_stack",
    "mean_and_standard_error",
    "speed_up",
    "t_test",
]
