"""Compare runs: groups of repeats, estimates, confounding, differences and the gate. It neither draws nor prints."""

from tracking.analysis.compare import (
    axis_values,
    censoring,
    confounding,
    diff,
    estimates,
    gate,
    gate_side,
    grouping,
    kernel_diff,
    non_inferiority,
)
from tracking.analysis.compare.best import Best, BestStack, best, best_of, best_stacks, ranked
from tracking.analysis.compare.censoring import UNTIL_CENSORED
from tracking.analysis.compare.comparisons import ALPHA, Comparison, Factors, compare, factors, runs_that_would_tell
from tracking.analysis.compare.estimates import Estimate, estimate, speed_up
from tracking.analysis.compare.grouping import DEVICES, Setting, Task, is_stack
from tracking.analysis.compare.missing import missing

__all__ = [
    "ALPHA", "DEVICES", "UNTIL_CENSORED", "Best", "BestStack", "Comparison", "Estimate", "Factors", "Setting",
    "Task", "axis_values", "best", "best_of", "best_stacks", "censoring", "compare", "confounding", "diff", "estimate",
    "estimates", "factors", "gate", "gate_side", "grouping", "is_stack", "kernel_diff", "missing", "non_inferiority",
    "ranked", "runs_that_would_tell", "speed_up",
]  # fmt: skip
