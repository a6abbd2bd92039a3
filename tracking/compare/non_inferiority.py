"""Whether a candidate is slower than a baseline by more than a margin: a test of non-inferiority, for CI.

The question is of the ratio of true means, time of the candidate / time of the baseline: is it below 1 + margin? It is
answered by a one-sided t-test on either side of that limit (statistics.exceeds, falls_below). At a confidence of
0.95, one in twenty candidates that are slower by exactly the margin passes, fewer of those that are slower still, and
fewer than one in twenty of those that are within the margin fail. Where neither is shown, the runs cannot tell.
(Non-inferiority: ICH E9, "Statistical Principles for Clinical Trials", section 3.3.2.) Runs that did not get to their
target count against their side (time_to_event).
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tracking.compare.estimates import Estimate, estimate, ratio
from tracking.compare.given_up import UNTIL_GIVEN_UP
from tracking.compare.grouping import Setting
from tracking.compare.metric_direction import COSTS, RATES, has_slowdown, higher_is_better
from tracking.results import Cell, Run, Table
from tracking.statistics import Times, counted, exceeds, falls_below, ratio_bounds, repeats_to_tell, share, verb

NOT_SLOWER, SLOWER, CANNOT_TELL = 0, 1, 2
WORDS = {NOT_SLOWER: "not slower", SLOWER: "slower", CANNOT_TELL: "cannot tell"}
MORE_TIME = "Give runs more room to reach the target (max_epochs, timeout_sec), or run more seeds"
POWER = 0.8  # the probability with which the repeats that are advised would tell


@dataclass(frozen=True)
class Side:
    """What the runs of one side say of a metric: its values, and how many runs ended how.

    Of a metric to accuracy, runs that did not get to their target are `given_up`, each with the value that it had come
    to by then, or `num_diverged`. Of any other they are as good as the rest.
    """

    values: Sequence[float]
    num_finished: int  # trained to the end, target reached or not; with those that were given up
    missed: int = 0  # the finished ones that did not reach the target
    failed: dict[str, int] = field(default_factory=dict)  # The number of each kind of failure.
    running: int = 0
    given_up: Sequence[float] = ()
    num_diverged: int = 0

    @property
    def num_failed(self) -> int:
        return sum(self.failed.values())

    @property
    def times(self) -> Times:
        return Times(self.values, self.given_up, (), self.num_diverged)

    @property
    def num_ended(self) -> int:
        return self.num_finished + self.num_failed


@dataclass(frozen=True)
class GateVerdict:
    """The answer: its exit code, why, and what is to be known beside it. `slowdown` is (low, observed, high) - 1.

    The observed one is None where runs of both sides did not get to their target.
    """

    code: int
    metric: str
    why: str
    notes: Sequence[str] = ()
    sides: Sequence[Side] = ()
    slowdown: tuple[float, float | None, float] | None = None

    @property
    def sentence(self) -> str:
        return f"{self.metric}: {WORDS[self.code]}: {self.why}"

    def table(self) -> Table:
        columns = {"": "", "runs": "{:.0f}", "mean ± standard error": "", "reached": "", "failed": ""}
        counted = self.metric in UNTIL_GIVEN_UP
        rows: list[list[Cell]] = [
            [name, float(side.times.n), described(side.times), reached(side) if counted else "", kinds(side.failed)]
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
    setting = Setting.of({}, runs, finished)
    times = setting.measured(metric)
    short = [*setting.missed, *setting.diverged, *setting.stopped] if metric in UNTIL_GIVEN_UP else []
    failed = [run for run in runs if run not in finished and run not in running and run not in short]
    return Side(
        times.reached,
        len(finished) + sum(not run.finished for run in short),
        len(short) or len(setting.missed),
        dict(Counter(run.failure or "unknown" for run in failed)),
        len(running),
        times.censored,
        times.num_diverged,
    )


def decide(baseline: Side, candidate: Side, metric: str, margin: float, confidence: float = 0.95) -> GateVerdict:
    """The verdict on two sides. `margin` is the slowdown allowed, 0.03 for 3 %.

    Raises ValueError for a metric that is neither time nor rate, or whose means are not positive.
    """
    check_metric(metric)
    slow, fast = (baseline, candidate) if higher_is_better(metric) else (candidate, baseline)
    details: dict[str, Any] = {"notes": remarks(baseline, candidate, metric), "sides": (baseline, candidate)}
    shares = shares_reached(baseline, candidate) if metric in UNTIL_GIVEN_UP else ""
    if min(slow.times.n, fast.times.n) < 2:
        counts = f"{baseline.times.n} of the baseline and {candidate.times.n} of the candidate"
        why = f"there are values of {counts}, and a spread takes two of each; run more seeds (seed=1,2,3,4,5){shares}"
        return GateVerdict(CANNOT_TELL, metric, why, **details)
    if not slow.values and not fast.values:
        return GateVerdict(CANNOT_TELL, metric, f"no run reached its target; {MORE_TIME}{shares}", **details)
    bounds = ratio_bounds(slow.times, fast.times, confidence)
    assert bounds is not None
    low, high = (f"{bound - 1:+z.1%}" for bound in bounds)
    observed = ratio_observed(slow.times, fast.times)
    details["slowdown"] = (bounds[0] - 1, observed.mean - 1 if observed else None, bounds[1] - 1)
    seen = f"{observed.bound} {observed.mean - 1:+z.1%}".lstrip() if observed else "unknown"
    shown, sure = f"slowdown {seen}, allowed {percent(margin)}", f"at a confidence of {confidence:.3g}{shares}"
    code = compared(slow.times, fast.times, 1 + margin, confidence)
    if code == SLOWER:
        return GateVerdict(code, metric, f"{shown}; at least {low} {sure}", **details)
    if code == CANNOT_TELL:
        advice = advised(slow.times, fast.times, margin, confidence)
        return GateVerdict(code, metric, f"{shown}; between {low} and {high} {sure}. {advice}", **details)
    if why := what_keeps_from_passing(baseline, candidate):
        return GateVerdict(
            CANNOT_TELL, metric, f"{why}; of the others: {shown}. Mend and repeat them{shares}", **details
        )
    return GateVerdict(code, metric, f"{shown}; at most {high} {sure}", **details)


def what_keeps_from_passing(baseline: Side, candidate: Side) -> str:
    """In words, that the candidate fails or misses more often than the baseline; "" where it does not."""
    if candidate.num_failed * baseline.num_ended > baseline.num_failed * candidate.num_ended:
        failed = f"{candidate.num_failed} of {counted(candidate.num_ended, 'run')} of the candidate failed"
        return f"{failed} ({kinds(candidate.failed)}), of the baseline {baseline.num_failed} of {baseline.num_ended}"
    times, baseline_times = candidate.times, baseline.times
    if times.num_short * baseline_times.n > baseline_times.num_short * times.n:
        missed = f"{times.num_short} of {counted(times.n, 'run')} of the candidate did not reach the target"
        return f"{missed}, of the baseline {baseline_times.num_short} of {baseline_times.n}"
    return ""


def shares_reached(baseline: Side, candidate: Side) -> str:
    words = [f"{name} {reached(side)}" for name, side in (("baseline", baseline), ("candidate", candidate))]
    return f"; reached the target: {', '.join(words)}"


def reached(side: Side) -> str:
    """How many runs reached the target, of a metric to accuracy; "" of no run."""
    proportion = share(len(side.values), len(side.values) + side.missed)
    return proportion.text if proportion else ""


def ratio_observed(slow: Times, fast: Times) -> Estimate | None:
    """The ratio of the means; a bound of it where runs of one side did not get there, None where of both."""
    top, bottom = estimate(slow), estimate(fast)
    return ratio(top, bottom) if top and bottom else None


def compared(slow: Times, fast: Times, limit: float, confidence: float) -> int:
    """The exit code by the runs alone, two a side at least: is mean(slow) / mean(fast) above or below the limit?"""
    above, below = exceeds(slow, fast, limit), falls_below(slow, fast, limit)
    assert above is not None
    assert below is not None
    if above < 1 - confidence:
        return SLOWER
    equal = above == below == 1.0 and not slow.num_short + fast.num_short  # Neither side scatters.
    return NOT_SLOWER if below < 1 - confidence or equal else CANNOT_TELL


def advised(slow: Times, fast: Times, margin: float, confidence: float) -> str:
    """How many repeats would tell, by the spread observed: if there is no slowdown, and if it is the one observed."""
    if slow.num_short or fast.num_short:
        return MORE_TIME
    observed = statistics.fmean(slow.reached) / statistics.fmean(fast.reached)
    parts = []
    for true_ratio, words in ((1.0, "if it is as fast as the baseline"), (observed, f"if it is {observed - 1:+z.1%}")):
        if n := repeats_to_tell(slow.reached, fast.reached, 1 + margin, true_ratio, lambda _: 1 - confidence, POWER):
            parts.append(f"{max(n, 2)} {words}")
    if not parts:
        return (
            "By this spread no number of repeats would tell: allow more (--max-slowdown), or measure with less spread"
        )
    return f"Runs a side that would tell, with a probability of {POWER:.0%}, by the spread of these: {', '.join(parts)}"


def remarks(baseline: Side, candidate: Side, metric: str) -> list[str]:
    """What is to be said of runs that are not averaged as they are."""
    notes = []
    to_accuracy = metric in UNTIL_GIVEN_UP
    for name, side in (("baseline", baseline), ("candidate", candidate)):
        if side.num_failed:
            failed = f"{side.num_failed} of {counted(side.num_ended, 'run')} failed, and"
            notes.append(f"{name}: {failed} {verb('count', side.num_failed)} nowhere: {kinds(side.failed)}")
        if side.missed and to_accuracy:
            unknown = sum(bound == 0.0 for bound in side.given_up)
            when = f", {unknown} of them at a time that is not known" if unknown else ""
            missed = f"{side.missed} of {counted(side.num_finished, 'run')} did not reach the target"
            notes.append(f"{name}: {missed}, and {verb('count', side.missed)} against it{when}")
        elif side.missed:
            notes.append(f"{name}: {of_finished(side.missed, side)} missed the target")
        num_without = side.num_finished - len(side.values) - (side.missed if to_accuracy else 0)
        if num_without > 0:
            notes.append(f"{name}: {of_finished(num_without, side)} {verb('have', num_without)} no {metric}")
        if side.running:
            notes.append(f"{name}: {side.running} still running, and left out")
    return notes


def percent(share: float) -> str:
    return f"{100 * share:+.3g}%"


def of_finished(count: int, side: Side) -> str:
    return f"{count} of {counted(side.num_finished, 'finished run')}"


def kinds(failed: dict[str, int]) -> str:
    return ", ".join(f"{kind} ({count})" for kind, count in failed.items())


def described(times: Times) -> str:
    mean = estimate(times)
    if mean is None:
        return ""
    shown = f"{mean.bound} {mean.mean:.5g}".lstrip()
    return shown if mean.error is None else f"{shown} ± {mean.error:.2g}"
