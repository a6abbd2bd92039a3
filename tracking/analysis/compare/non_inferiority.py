"""Whether a candidate is slower than a baseline by more than a margin: a test of non-inferiority, for CI.

The question: is the ratio of true means, time of the candidate / time of the baseline, below 1 + margin? A one-sided
t-test on either side of this limit answers it (statistics.exceeds, falls_below). If neither test rejects, the runs
cannot tell. (Non-inferiority: ICH E9, "Statistical Principles for Clinical Trials", section 3.3.2.)

At a confidence of 0.95, a candidate that is slower by exactly the margin passes once in twenty times; a slower one
passes less often. A candidate within the margin fails less than once in twenty times.

Runs without the target count against their side (statistics.sooner). A candidate that reaches its target less often
than the baseline, within the budget that both had, fails by any metric.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from conf.metric import HIGHER, NO_DIRECTIONS
from tracking.analysis.compare.censoring import UNTIL_CENSORED
from tracking.analysis.compare.estimates import Estimate, estimate, ratio
from tracking.analysis.compare.gate_side import TIME, Side, described, kinds, reached, remarks
from tracking.analysis.results import Cell, Table
from tracking.analysis.statistics import (
    POWER,
    Counts,
    Needed,
    Times,
    exceeds,
    falls_below,
    often,
    pilot,
    ratio_bounds,
    runs_to_tell,
)
from tracking.base import quantities
from tracking.base.number_text import counted, significant
from tracking.base.quantities import how_to_declare, unit, why_unknown

NOT_SLOWER, SLOWER, CANNOT_TELL = 0, 1, 2
ON_EVALUATIONS = "Times fall on evaluations: evaluate more often, or give --metric a rate or time/epoch_sec. "
MORE_TIME = "Give runs more room to reach the target (max_epochs, timeout_sec), or run more seeds"
REPAIR = "Repair and repeat the runs without a value"
WORDS = {NOT_SLOWER: "not slower", SLOWER: "slower", CANNOT_TELL: "cannot tell"}
SCORE_WORDS = {NOT_SLOWER: "not worse", SLOWER: "worse", CANNOT_TELL: "cannot tell"}  # neither time nor rate


@dataclass(frozen=True)
class GateVerdict:
    """The answer: its exit code, the reason, and notes. `slowdown` is (low, observed, high) - 1.

    Low and high are a two-sided interval. The observed slowdown is None if runs of both sides missed their target.
    """

    code: int
    metric: str
    why: str
    notes: Sequence[str] = ()
    sides: Sequence[Side] = ()
    slowdown: tuple[float, float | None, float] | None = None

    @property
    def sentence(self) -> str:
        return f"{self.metric}: {_words(self.metric)[self.code]}: {self.why}"

    def table(self) -> Table:
        columns = {"": "", "runs": "{:.0f}", "mean ± standard error": "", "reached": "", "failed": ""}
        rows: list[list[Cell]] = [
            [name, float(side.times.n), described(side.times), reached(side, self.metric), kinds(side.failed)]
            for name, side in zip(("baseline", "candidate"), self.sides, strict=True)
        ]
        return Table(self.metric, columns, rows)


def check_metric(metric: str, better: str | None) -> str:
    """The direction of a metric. Raises ValueError for a metric without a known direction."""
    if better is None:
        advice = how_to_declare(metric)
        raise ValueError(f"--metric {metric}: {why_unknown(metric)}{advice and f'. Next: {advice}'}")
    return better


def decide(
    baseline: Side, candidate: Side, metric: str, margin: float, confidence: float = 0.95, paired: bool = False,
    declared: Mapping[str, str] = NO_DIRECTIONS,
) -> GateVerdict:  # fmt: skip
    """The verdict on two sides.

    `margin` is the allowed slowdown, 0.03 for 3 %. `paired`: values with the same index have the same seed. `declared`
    holds the directions of the runs' own metrics. Raises ValueError for a metric whose direction is not known, or whose
    means are not positive.
    """
    higher = check_metric(metric, quantities.better(metric, declared)) == HIGHER
    verdict = by_metric(baseline, candidate, metric, higher, margin, confidence, paired)
    verdict = replace(verdict, notes=remarks(baseline, candidate, metric), sides=(baseline, candidate))
    if verdict.code != SLOWER and (reaching := less_often(baseline, candidate, confidence)):
        why = f"the candidate reaches the target less often: {in_words(reaching, unit(TIME))}"
        return replace(verdict, code=SLOWER, why=f"{why}, at a confidence of {confidence:.3g}; {verdict.why}")
    return verdict


def by_metric(
    baseline: Side, candidate: Side, metric: str, higher: bool, margin: float, confidence: float, paired: bool
) -> GateVerdict:
    """The verdict by the metric alone; `higher`: higher values are better."""
    slow, fast = (side.times for side in (candidate, baseline))
    if higher:
        slow, fast = fast, slow
    shares = shares_reached(baseline, candidate, metric)
    if min(slow.n, fast.n) < 2:
        numbers = f"{baseline.times.n} of the baseline and {candidate.times.n} of the candidate"
        why = f"values of {numbers}; a spread needs two of each: run more seeds (seed=1,2,3,4,5){shares}"
        return GateVerdict(CANNOT_TELL, metric, why)
    if not slow.reached and not fast.reached:
        return GateVerdict(CANNOT_TELL, metric, f"no run reached its target; {MORE_TIME}{shares}")
    interval, limits = (
        ratio_bounds(slow, fast, sure, paired) or (0.0, math.inf) for sure in ((1 + confidence) / 2, confidence)
    )
    observed = ratio_observed(slow, fast)
    slowdown = interval[0] - 1, observed.mean - 1 if observed else None, interval[1] - 1
    change = f"{observed.bound} {observed.mean - 1:+z.1%}".lstrip() if observed else "unknown"
    shown = f"{_noun(metric)} {change}, allowed {percent(margin)}"
    sure = f"at a confidence of {confidence:.3g}{shares}"
    code = compared(slow, fast, 1 + margin, confidence, paired)
    if observed and code != CANNOT_TELL and (observed.mean > 1 + margin) != (code == SLOWER):
        # Runs without a value are compared by rank, which need not agree with their means.
        words = f"most pairs of runs say that the candidate is {_words(metric)[code]}, and the means say otherwise"
        code, why = CANNOT_TELL, f"{shown}; {words}, {sure}. {REPAIR}"
    elif code == SLOWER:
        why = f"{shown}; {_limit('at least', limits[0])} {sure}"
    elif code == CANNOT_TELL:
        names = ("baseline", "candidate") if higher else ("candidate", "baseline")
        advice = advised(slow, fast, margin, confidence, names, paired)
        advice = REPAIR if advice == MORE_TIME and metric not in UNTIL_CENSORED else advice
        why = f"{shown}; between {interval[0] - 1:+z.1%} and {interval[1] - 1:+z.1%} {sure}. {advice}"
    elif reason := why_not_passed(baseline, candidate, metric):
        code, why = CANNOT_TELL, f"{reason}; the other runs: {shown}. Repair and repeat the former{shares}"
    else:
        why = f"{shown}; {_limit('at most', limits[1])} {sure}"
    return GateVerdict(code, metric, why, slowdown=slowdown)


def _limit(words: str, ratio: float) -> str:
    """`at most +1.2%`; if runs that did not reach the target leave no such limit, what was compared instead."""
    return f"{words} {ratio - 1:+z.1%}" if 0 < ratio < math.inf else "judged by which runs were better,"


def _noun(metric: str) -> str:
    return "slowdown" if _words(metric) is WORDS else "change for the worse"


def _words(metric: str) -> dict[int, str]:
    """The words of a verdict. Times, and rates and steps, which have a unit, are slower; other metrics are worse."""
    slows = metric.startswith(quantities.TIME) or (metric.startswith(quantities.THROUGHPUT) and unit(metric))
    return WORDS if slows else SCORE_WORDS


def less_often(baseline: Side, candidate: Side, confidence: float) -> Counts | None:
    """How often both sides reach the target, if the candidate does so significantly less often; else None."""
    verdict = often(baseline.reaching, candidate.reaching)
    return verdict.counts if verdict and verdict.first and verdict.p < 1 - confidence else None


def in_words(reaching: Counts, of_unit: str) -> str:
    by = f" by {significant(reaching.horizon, 4)}{of_unit}" if math.isfinite(reaching.horizon) else ""
    candidate = f"{reaching.other_reached} of {counted(reaching.m, 'run')}"
    return f"{candidate}, and {reaching.reached} of {reaching.n} of the baseline{by}"


def why_not_passed(baseline: Side, candidate: Side, metric: str) -> str:
    """A sentence if the candidate fails, misses its target or becomes NaN more often than the baseline; else ""."""
    if candidate.num_failed * baseline.num_ended > baseline.num_failed * candidate.num_ended:
        failed = f"{candidate.num_failed} of {counted(candidate.num_ended, 'run')} of the candidate failed"
        return f"{failed} ({kinds(candidate.failed)}), of the baseline {baseline.num_failed} of {baseline.num_ended}"
    missed, of_baseline = (len(side.times.missed) + side.times.num_diverged for side in (candidate, baseline))
    known, baseline_known = (side.times.n - len(side.times.stopped) for side in (candidate, baseline))
    if missed * baseline_known > of_baseline * known:
        words = f"{missed} of {counted(known, 'run')} of the candidate"
        words = f"{words} did not reach the target" if metric in UNTIL_CENSORED else f"{metric} became NaN in {words}"
        return f"{words}, of the baseline {of_baseline} of {baseline_known}"
    late, baseline_late = _num_stopped_late(candidate, baseline), _num_stopped_late(baseline, candidate)
    if late * baseline.times.n > baseline_late * candidate.times.n:
        words = f"{late} of {counted(candidate.times.n, 'run')} of the candidate"
        return f"{words} had not reached the target when stopped, later than any run of the baseline"
    return ""


def _num_stopped_late(side: Side, other: Side) -> int:
    """The number of a side's runs that were stopped without the target, later than any time of the other side."""
    return sum(bool(when > other.times.latest) for when in side.times.stopped)


def shares_reached(baseline: Side, candidate: Side, metric: str) -> str:
    words = [f"{name} {reached(side, metric)}" for name, side in (("baseline", baseline), ("candidate", candidate))]
    return f"; reached the target: {', '.join(words)}" if metric in UNTIL_CENSORED else ""


def ratio_observed(slow: Times, fast: Times) -> Estimate | None:
    """The ratio of the means; a bound if runs of one side missed their target, None if runs of both did."""
    top, bottom = estimate(slow), estimate(fast)
    return ratio(top, bottom) if top and bottom else None


def compared(slow: Times, fast: Times, limit: float, confidence: float, paired: bool = False) -> int:
    """The exit code: is mean(slow) / mean(fast) above or below the limit? Each side needs two runs or more."""
    above, below = exceeds(slow, fast, limit, paired), falls_below(slow, fast, limit, paired)
    assert above is not None
    assert below is not None
    if above < 1 - confidence:
        return SLOWER
    equal = above == below == 1.0 and not slow.num_short + fast.num_short  # neither side has any variance
    return NOT_SLOWER if below < 1 - confidence or equal else CANNOT_TELL


def percent(share: float) -> str:
    return f"{100 * share:+.3g}%"


def advised(
    slow: Times, fast: Times, margin: float, confidence: float, names: tuple[str, str], paired: bool = False
) -> str:
    """How many repeats would decide, by the observed spread: without a slowdown, and with the observed one.

    `names` are the names of the slow and of the fast side.
    """
    if slow.num_short or fast.num_short:
        return MORE_TIME
    limit = 1 + margin
    first, second = pilot(slow.reached, slow.interval), pilot(fast.reached, fast.interval).scaled(limit)
    if paired:
        gaps = [value - limit * other for value, other in zip(slow.reached, fast.reached, strict=True)]
        first = pilot(gaps, math.hypot(slow.interval, limit * fast.interval))
        second = replace(second, variance=0.0, interval=0.0)
    mean = statistics.fmean(fast.reached)
    observed = statistics.fmean(slow.reached) / mean
    parts = []
    for true_ratio, words in ((1.0, "if it is as fast as the baseline"), (observed, f"if it is {observed - 1:+z.1%}")):
        if needed := runs_to_tell(first, second, abs(true_ratio - limit) * mean, 1 - confidence):
            parts.append(f"{runs_needed(needed, (slow.n, fast.n), names)} {words}")
    if not parts:
        return (
            "With this spread, no number of repeats would decide: allow a larger --max-slowdown, or reduce the spread"
        )
    words = f"Runs a side that would decide, with a probability of {POWER:.0%} and this spread: {', '.join(parts)}"
    coarse = any(side.interval / 2 > statistics.stdev(side.reached) for side in (slow, fast))
    return ON_EVALUATIONS * coarse + words


def runs_needed(needed: Needed, num_runs: tuple[int, int], names: tuple[str, str]) -> str:
    """How many runs each side needs, or the only side with too few; with the number at the largest spread."""
    sizes = needed.first, needed.second
    most = f"up to {max(needed.most)}" if needed.most else "or far more"
    growing = [place for place in (0, 1) if sizes[place] > num_runs[place]]
    if len(growing) == 1:
        place = growing[0]
        return f"{sizes[place]} of the {names[place]} ({most})"
    return f"{max(sizes)} ({most})"
