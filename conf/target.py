"""The target of a metric: at least a number (`0.9`, `">=0.9"`), or at most one (`"<=3.28"`, for a loss)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from conf.metric import HIGHER, LOWER

Target = float | str  # A number is reached from below. A string is "<=" and a number.
FORMS = "a number, >=NUMBER, or <=NUMBER if lower is better"
ON_ANOTHER_METRIC = "Next: for a target on another metric give +model.targets.DATASET.METRIC=VALUE"
AT_LEAST, AT_MOST = ">=", "<="
TARGET_PATTERN = re.compile(r"\s*(>=|<=)?\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


def parse(value: Any) -> Target:
    """The target in its normal form. Raises ValueError for anything else."""
    match = TARGET_PATTERN.fullmatch(str(value)) if isinstance(value, int | float | str) else None
    if match is None or isinstance(value, bool):
        raise ValueError(f"not a target. Allowed: {FORMS}")
    number = float(match[2])
    return f"{AT_MOST}{number:g}" if match[1] == AT_MOST else number


def is_at_most(target: Target) -> bool:
    return isinstance(target, str) and target.startswith(AT_MOST)


def better(target: Target) -> str:
    """Which way the target's metric is better: LOWER or HIGHER of conf.metric."""
    return LOWER if is_at_most(target) else HIGHER


def directions_of(targets: Mapping[str, Target]) -> dict[str, str]:
    """The direction of each metric that has a target."""
    return {name: better(target) for name, target in targets.items()}


def limit(target: Target) -> float:
    """The number of a target, also of one in the form of `text`."""
    return float(str(target).removeprefix(AT_MOST))


def margin(value: float, target: Target) -> float:
    """By how much a value is better than the target; NaN if the value is NaN."""
    return limit(target) - value if is_at_most(target) else value - limit(target)


def meets_target(value: float, target: Target) -> bool:
    """Whether a value meets the target. NaN does not, nor does infinity, which comes from an overflow."""
    return math.isfinite(value) and margin(value, target) >= 0


def text(target: Target) -> str:
    """`0.9` or `<=3.28`."""
    return f"{AT_MOST if is_at_most(target) else ''}{limit(target):g}"
