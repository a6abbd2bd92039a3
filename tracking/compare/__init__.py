"""What runs say about each other: groups of repeats, estimates, confounding, differences and the gate.

The arithmetic is pure: it draws nothing and prints nothing.
"""

from __future__ import annotations

from tracking.compare import axis_values, confounding, diff, estimates, gate, given_up, grouping, kernel_diff
from tracking.compare.best import Best, BestStack, best, best_of, best_stacks
from tracking.compare.comparisons import ALPHA, Comparison, Factor, Factors, compare, factors, runs_that_would_tell
from tracking.compare.estimates import Estimate, estimate, speed_up
from tracking.compare.given_up import UNTIL_GIVEN_UP
from tracking.compare.grouping import DEVICES, Setting, Task, is_stack
from tracking.compare.missing import missing
from tracking.compare.quantities import QUANTITIES, RATIOS, Quantity, unit

__all__ = [
    "ALPHA",
    "DEVICES",
    "QUANTITIES",
    "RATIOS",
    "UNTIL_GIVEN_UP",
    "Best",
    "BestStack",
    "Comparison",
    "Estimate",
    "Factor",
    "Factors",
    "Quantity",
    "Setting",
    "Task",
    "axis_values",
    "best",
    "best_of",
    "best_stacks",
    "compare",
    "confounding",
    "diff",
    "estimate",
    "estimates",
    "factors",
    "gate",
    "given_up",
    "grouping",
    "is_stack",
    "kernel_diff",
    "missing",
    "runs_that_would_tell",
    "speed_up",
    "unit",
]
