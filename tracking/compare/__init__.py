"""What runs say about each other: groups of repeats, means with their errors, tests, confounding, differences and the
gate.

The arithmetic is pure, and has its formulas' sources beside it. It draws nothing and prints nothing.
"""

from __future__ import annotations

from tracking.compare import confounding, diff, estimates, gate, grouping, kernel_diff, more_often, time_to_event
from tracking.compare.best_stack import Extremes, extremes
from tracking.compare.chosen_pair import Choice
from tracking.compare.estimates import Comparison, Estimate, estimate, speed_up
from tracking.compare.grouping import DEVICES, Setting, Task, is_stack
from tracking.compare.missing import missing
from tracking.compare.quantities import QUANTITIES, RATIOS, Quantity
from tracking.compare.statistics import mean_and_standard_error, olympic_mean, t_test
from tracking.compare.time_to_event import UNTIL_GIVEN_UP, Share, Times, share

__all__ = [
    "DEVICES",
    "QUANTITIES",
    "RATIOS",
    "UNTIL_GIVEN_UP",
    "Choice",
    "Comparison",
    "Estimate",
    "Extremes",
    "Quantity",
    "Setting",
    "Share",
    "Task",
    "Times",
    "confounding",
    "diff",
    "estimate",
    "estimates",
    "extremes",
    "gate",
    "grouping",
    "is_stack",
    "kernel_diff",
    "mean_and_standard_error",
    "missing",
    "more_often",
    "olympic_mean",
    "share",
    "speed_up",
    "t_test",
    "time_to_event",
]
