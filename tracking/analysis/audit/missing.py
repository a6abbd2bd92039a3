"""Combinations of stacks and machines without a counted run, which a report should list."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from tracking.analysis.audit.evidence import SHORT, SOFTWARE, UNCHECKED, Evidence, is_stack

MACHINE = {"instance", "env.gpu", "env.gpu_count", "env.node", "env.cpu", "env.topology", "env.hardware_id"}


def rows(evidence: Evidence, workload: str) -> dict[str, Any]:
    """The combinations without a counted run. Their reasons are words, which are not checked."""
    if not any(map(is_stack, evidence.axes)):
        return {}
    known, parts = evidence.settings(workload), together(evidence.axes)
    choices = [
        {tuple(setting[axis] for axis in part) for setting in known if "(none)" not in [setting[axis] for axis in part]}
        for part in parts
    ]
    expected = {}
    for chosen in product(*choices):
        pairs = (pair for part, values in zip(parts, chosen, strict=True) for pair in zip(part, values, strict=True))
        by_axis = dict(pairs)
        labels = {axis: by_axis[axis] for axis in evidence.axes}
        if not len(evidence.sample(workload, labels, evidence.metric)):
            expected[" ".join(labels.values())] = {**labels, "why": UNCHECKED}
    return expected


def together(axes: Sequence[str]) -> list[list[str]]:
    """Groups of axes whose values come together: software (without the driver), the machine, each other axis alone."""
    of: dict[str, list[str]] = {}
    for axis in axes:
        name = SHORT.get(axis, axis)
        driver_apart = name == "env.driver" and "env.stack_id" not in axes
        kind = "software" if name in SOFTWARE and not driver_apart else "machine" if name in MACHINE else name
        of.setdefault(kind, []).append(axis)
    return [*of.values()]
