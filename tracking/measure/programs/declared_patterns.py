"""Read values from a program's own output by the regular expressions of `program.*`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tracking.measure.programs import checked_values, number_parsing
from tracking.measure.programs.line_splitter import SkippedLines


@dataclass(frozen=True)
class PatternMatch:
    """A matched value. `role` is metric, samples, epoch, step or start; `key` is the metric's."""

    role: str
    key: str
    value: float


def compile_pattern(pattern: str, groups: int = 1) -> re.Pattern[str]:
    """The compiled expression. Raises ValueError for an invalid one, or another number of groups."""
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if expression.groups != groups:
        words = "none" if groups == 0 else "exactly one, around the number"
        raise ValueError(f"has {expression.groups} groups (...). Next: give {words}, and write others as (?:...)")
    return expression


class DeclaredPatterns:
    """Matches lines against the declared expressions: `metrics` by key, and the others. A line may match several.

    `skipped` collects numbers that were matched and could not be read.
    """

    def __init__(
        self, metrics: Mapping[str, str], samples: str | None = None, epoch: str | None = None,
        step: str | None = None, start: str | None = None, samples_per_step: int | None = None,
    ) -> None:  # fmt: skip
        self.skipped = SkippedLines()
        singles = {"epoch": epoch, "step": step, "samples": samples}
        # In this order, since an epoch's number in a metric's line belongs to that metric.
        self._patterns = [(role, "", compile_pattern(text)) for role, text in singles.items() if text]
        self._patterns += [("metric", key, compile_pattern(text)) for key, text in metrics.items()]
        self._samples_per_step = samples_per_step
        self._start = compile_pattern(start, groups=0) if start else None

    def matches(self, line: str) -> Iterator[PatternMatch]:
        """The matches of a line, at most one per expression. Numbers that are ambiguous go to `skipped`."""
        if self._start is not None and self._start.search(line):
            yield PatternMatch("start", "", 0.0)
        for role, key, pattern in self._patterns:
            match = pattern.search(line)
            if match is None or match[1] is None:
                continue
            try:
                value = _value(match, role)
                yield PatternMatch(role, key, value)
                if role == "step" and self._samples_per_step:
                    yield PatternMatch("samples", "", value * self._samples_per_step)
            except ValueError as error:
                self.skipped.add(f"{key or role} {checked_values.shortened(match[1])} {error}", line)


def _value(match: re.Match[str], role: str) -> float:
    value = number_parsing.matched_number(match, is_count=role in ("samples", "step"))
    if role != "metric" and not 0 <= value <= checked_values.MAX_COUNT:
        raise ValueError(f"is not from 0 to {checked_values.MAX_COUNT}")
    return value
