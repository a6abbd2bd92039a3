"""Whether a candidate is slower than a baseline by more than a margin: a test of non-inferiority, for CI.

The question is of the ratio of true means, time of the candidate / time of the baseline: is it below 1 + margin? It is
answered by a one-sided t-test on either side of that limit (statistics.exceeds, falls_below). At a confidence of
0.95, one in twenty candidates that are slower by exactly the margin passes, fewer of those that are slower still, and
fewer than one in twenty of those that are within the margin fail. Where neither is shown, the runs cannot tell.
(Non-inferiority: ICH E9, "Statistical Principles for Clinical Trials", section 3.3.2.)
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tracking.compare.metric_direction import COSTS, RATES, has_slowdown, higher_is_better
from tracking.compare.statistics import exceeds, falls_below, mean_and_standard_error, ratio_bounds, repeats_to_tell
from tracking.results import Cell, Run, Table

NOT_SLOWER, SLOWER, CANNOT_TELL = 0, 1, 2
WORDS = {NOT_SLOWER: "not slower", SLOWER: "slower", CANNOT_TELL: "cannot tell"}
POWER = 0.8  # the probability with which the repeats that are advised would tell


@dataclass(frozen=True)
class Side:
    """What the runs of one side say of a metric: its values, and how many runs ended how."""

    values: Sequence[float]
    num_finished: int  # trained to the end, target reached or not
    missed: int = 0  # the finished ones that did not reach the target
    failed: dict[str, int] = field(default_factory=dict)  # by kind of failure: how many
    running: int = 0

    @property
    def num_failed(self) -> int:
        return sum(self.failed.values())

    @property
    def num_ended(self) -> int:
        return self.num_finished + self.num_failed


@dataclass(frozen=True)
class Verdict:
    """The answer: its exit code, why, and what is to be known beside it. `slowdown` is (low, observed, high) - 1."""

    code: int
    metric: str
    why: str
    notes: Sequence[str] = ()
    sides: Sequence[Side] = ()
    slowdown: tuple[float, float, float] | None = None

    @property
    def sentence(self) -> str:
        return f"{self.metric}: {WORDS[self.code]}: {self.why}"

    def table(self) -> Table:
        columns = {"": "", "runs": "{:.0f}", "mean ± standard error": "", "missed": "{:.0f}", "failed": ""}
        rows: list[list[Cell]] = [
            [name, float(len(side.values)), described(side.values), float(side.missed), kinds(side.failed)]
            for name, side in zip(("baseline", "candidate"), self.sides, strict=True)
        ]
        return Table(self.metric, columns, rows)


def check_metric(metric: str) -> None:
    """Raise ValueError for a metric of which no slowdown can be told."""
    if not has_slowdown(metric):
        raise ValueError(
            f"--metric {metric}: is neither a time or cost ({', '.join(COSTS)}) nor a rate ({', '.join(RATES)}), of "
            "which alone a slowdown can be told"
        )


def side_of(runs: Sequence[Run], metric: str) -> Side:
    """What runs say of a metric. A failed run is counted and never averaged in, whatever it logged before."""
    finished = [run for run in runs if run.finished]
    running = [run for run in runs if run.status == "RUNNING"]
    return Side(
        [run.metrics[metric] for run in finished if metric in run.metrics],
        len(finished),
        sum(run.missed for run in finished),
        dict(Counter(run.failure or "unknown" for run in runs if run not in finished and run not in running)),
        len(running),
    )


def decide(baseline: Side, candidate: Side, metric: str, margin: float, confidence: float = 0.95) -> Verdict:
    """The verdict on two sides. `margin` is the slowdown allowed, 0.03 for 3 %.

    Raises ValueError for a metric that is neither time nor rate, or whose means are not positive.
    """
    check_metric(metric)
    slow, fast = (baseline, candidate) if higher_is_better(metric) else (candidate, baseline)
    details: dict[str, Any] = {"notes": remarks(baseline, candidate, metric), "sides": (baseline, candidate)}
    if "to_accuracy" in metric and candidate.missed * baseline.num_finished > baseline.missed * candidate.num_finished:
        missed = f"the candidate missed its target in {of_finished(candidate.missed, candidate)}"
        return Verdict(SLOWER, metric, f"{missed}, the baseline in {of_finished(baseline.missed, baseline)}", **details)
    if min(len(slow.values), len(fast.values)) < 2:
        counts = f"{len(baseline.values)} of the baseline and {len(candidate.values)} of the candidate"
        why = f"there are values of {counts}, and a spread takes two of each; run more seeds (seed=1,2,3,4,5)"
        return Verdict(CANNOT_TELL, metric, why, **details)
    bounds = ratio_bounds(slow.values, fast.values, confidence)
    assert bounds is not None
    low, high = (f"{bound - 1:+z.1%}" for bound in bounds)
    observed = statistics.fmean(slow.values) / statistics.fmean(fast.values) - 1
    details["slowdown"] = (bounds[0] - 1, observed, bounds[1] - 1)
    shown, sure = f"slowdown {observed:+z.1%}, allowed {percent(margin)}", f"at a confidence of {confidence:.3g}"
    code = compared(slow.values, fast.values, 1 + margin, confidence)
    if code == SLOWER:
        return Verdict(code, metric, f"{shown}; at least {low} {sure}", **details)
    if code == CANNOT_TELL:
        advice = advised(slow.values, fast.values, margin, confidence)
        return Verdict(code, metric, f"{shown}; between {low} and {high} {sure}. {advice}", **details)
    if candidate.num_failed * baseline.num_ended > baseline.num_failed * candidate.num_ended:
        failed = f"{candidate.num_failed} of {candidate.num_ended} runs of the candidate failed"
        why = f"{failed} ({kinds(candidate.failed)}), of the baseline {baseline.num_failed} of {baseline.num_ended}"
        return Verdict(CANNOT_TELL, metric, f"{why}; of those that did not: {shown}. Mend and repeat them", **details)
    return Verdict(code, metric, f"{shown}; at most {high} {sure}", **details)


def compared(slow: Sequence[float], fast: Sequence[float], limit: float, confidence: float) -> int:
    """The exit code by the values alone, two a side at least: is mean(slow) / mean(fast) above or below the limit?"""
    above, below = exceeds(slow, fast, limit), falls_below(slow, fast, limit)
    assert above is not None
    assert below is not None
    if above < 1 - confidence:
        return SLOWER
    return NOT_SLOWER if below < 1 - confidence or above == below == 1.0 else CANNOT_TELL


def advised(slow: Sequence[float], fast: Sequence[float], margin: float, confidence: float) -> str:
    """How many repeats would tell, by the spread observed: if there is no slowdown, and if it is the one observed."""
    observed = statistics.fmean(slow) / statistics.fmean(fast)
    parts = []
    for ratio, words in ((1.0, "if it is as fast as the baseline"), (observed, f"if it is {observed - 1:+z.1%}")):
        if n := repeats_to_tell(slow, fast, 1 + margin, ratio, confidence, POWER):
            parts.append(f"{max(n, 2)} {words}")
    if not parts:
        return (
            "By this spread no number of repeats would tell: allow more (--max-slowdown), or measure with less spread"
        )
    return f"Runs a side that would tell, with a probability of {POWER:.0%}, by the spread of these: {', '.join(parts)}"


def remarks(baseline: Side, candidate: Side, metric: str) -> list[str]:
    """What is to be said of runs that the means leave out."""
    notes = []
    to_accuracy = "to_accuracy" in metric
    for name, side in (("baseline", baseline), ("candidate", candidate)):
        if side.num_failed:
            notes.append(
                f"{name}: {side.num_failed} of {side.num_ended} runs failed, and count nowhere: {kinds(side.failed)}"
            )
        if side.missed:
            rest = "; the mean is of the others" if to_accuracy else ""
            notes.append(f"{name}: {of_finished(side.missed, side)} missed the target{rest}")
        num_without = side.num_finished - len(side.values) - (side.missed if to_accuracy else 0)
        if num_without:
            notes.append(f"{name}: {of_finished(num_without, side)} have no {metric}")
        if side.running:
            notes.append(f"{name}: {side.running} still running, and left out")
    return notes


def percent(share: float) -> str:
    return f"{100 * share:+.3g}%"


def of_finished(count: int, side: Side) -> str:
    return f"{count} of {side.num_finished} finished runs"


def kinds(failed: dict[str, int]) -> str:
    return ", ".join(f"{kind} ({count})" for kind, count in failed.items())


def described(values: Sequence[float]) -> str:
    if not values:
        return ""
    mean, error = mean_and_standard_error(values)
    return f"{mean:.5g}" if error is None else f"{mean:.5g} ± {error:.2g}"
