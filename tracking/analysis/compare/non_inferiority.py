"""Whether a candidate is slower than a baseline by more than a margin: a test of non-inferiority, for CI.

The question is of the ratio of true means, time of the candidate / time of the baseline: is it below 1 + margin? It is
answered by a one-sided t-test on either side of that limit (statistics.exceeds, falls_below). At a confidence of
0.95, one in twenty candidates that are slower by exactly the margin passes, fewer of those that are slower still, and
fewer than one in twenty of those that are within the margin fail. Where neither is shown, the runs cannot tell.
(Non-inferiority: ICH E9, "Statistical Principles for Clinical Trials", section 3.3.2.) Runs that did not get to their
target count against their side (statistics.sooner). A candidate that reaches its target less often than the baseline,
at the budget that both had, fails by any metric.
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
    counted,
    exceeds,
    falls_below,
    often,
    pilot,
    ratio_bounds,
    runs_to_tell,
)
from tracking.base import quantities
from tracking.base.quantities import unit, why_unknown

NOT_SLOWER, SLOWER, CANNOT_TELL = 0, 1, 2
ON_EVALUATIONS = "Times fall on evaluations: evaluate more often, or ask of a rate or of time/train_sec. "
MORE_TIME = "Give runs more room to reach the target (max_epochs, timeout_sec), or run more seeds"
WORDS = {NOT_SLOWER: "not slower", SLOWER: "slower", CANNOT_TELL: "cannot tell"}
OF_A_SCORE = {NOT_SLOWER: "not worse", SLOWER: "worse", CANNOT_TELL: "cannot tell"}  # of what a model is evaluated by


@dataclass(frozen=True)
class GateVerdict:
    """The answer: its exit code, why, and what is to be known beside it. `slowdown` is (low, observed, high) - 1.

    Low and high are a two-sided interval. The observed one is None where runs of both sides did not reach their target.
    """

    code: int
    metric: str
    why: str
    notes: Sequence[str] = ()
    sides: Sequence[Side] = ()
    slowdown: tuple[float, float | None, float] | None = None

    @property
    def sentence(self) -> str:
        words = OF_A_SCORE if quantities.is_declared(self.metric) else WORDS
        return f"{self.metric}: {words[self.code]}: {self.why}"

    def table(self) -> Table:
        columns = {"": "", "runs": "{:.0f}", "mean ± standard error": "", "reached": "", "failed": ""}
        counted = self.metric in UNTIL_CENSORED
        rows: list[list[Cell]] = [
            [name, float(side.times.n), described(side.times), reached(side) if counted else "", kinds(side.failed)]
            for name, side in zip(("baseline", "candidate"), self.sides, strict=True)
        ]
        return Table(self.metric, columns, rows)


def check_metric(metric: str, better: str | None) -> str:
    """The direction of a metric. Raises ValueError where neither way is better, or nothing says which is."""
    if better is None:
        raise ValueError(f"--metric {metric}: {why_unknown(metric)}")
    return better


def decide(
    baseline: Side, candidate: Side, metric: str, margin: float, confidence: float = 0.95, paired: bool = False,
    declared: Mapping[str, str] = NO_DIRECTIONS,
) -> GateVerdict:  # fmt: skip
    """The verdict on two sides. `margin` is the slowdown allowed, 0.03 for 3 %; `paired`: values of the same place are
    of the same seed; `declared` are the directions of the runs' own metrics.

    Raises ValueError for a metric whose direction is not known, or whose means are not positive.
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
    """The verdict by the metric alone; `higher`: a higher value of it is better."""
    slow, fast = (side.times for side in (candidate, baseline))
    if higher:
        slow, fast = fast, slow
    shares = shares_reached(baseline, candidate) if metric in UNTIL_CENSORED else ""
    if min(slow.n, fast.n) < 2:
        numbers = f"{baseline.times.n} of the baseline and {candidate.times.n} of the candidate"
        why = f"there are values of {numbers}, and a spread takes two of each; run more seeds (seed=1,2,3,4,5){shares}"
        return GateVerdict(CANNOT_TELL, metric, why)
    if not slow.reached and not fast.reached:
        return GateVerdict(CANNOT_TELL, metric, f"no run reached its target; {MORE_TIME}{shares}")
    interval, limits = (
        ratio_bounds(slow, fast, sure, paired) or (0.0, math.inf) for sure in ((1 + confidence) / 2, confidence)
    )
    observed = ratio_observed(slow, fast)
    slowdown = interval[0] - 1, observed.mean - 1 if observed else None, interval[1] - 1
    seen = f"{observed.bound} {observed.mean - 1:+z.1%}".lstrip() if observed else "unknown"
    shown, sure = f"{_noun(metric)} {seen}, allowed {percent(margin)}", f"at a confidence of {confidence:.3g}{shares}"
    code = compared(slow, fast, 1 + margin, confidence, paired)
    if code == SLOWER:
        why = f"{shown}; at least {limits[0] - 1:+z.1%} {sure}"
    elif code == CANNOT_TELL:
        names = ("baseline", "candidate") if higher else ("candidate", "baseline")
        advice = advised(slow, fast, margin, confidence, names, paired)
        why = f"{shown}; between {interval[0] - 1:+z.1%} and {interval[1] - 1:+z.1%} {sure}. {advice}"
    elif keeps := what_keeps_from_passing(baseline, candidate):
        code, why = CANNOT_TELL, f"{keeps}; of the others: {shown}. Mend and repeat them{shares}"
    else:
        why = f"{shown}; at most {limits[1] - 1:+z.1%} {sure}"
    return GateVerdict(code, metric, why, slowdown=slowdown)


def _noun(metric: str) -> str:
    return "change for the worse" if quantities.is_declared(metric) else "slowdown"


def less_often(baseline: Side, candidate: Side, confidence: float) -> Counts | None:
    """How often the baseline and the candidate reach the target, where the candidate does so less often for sure."""
    verdict = often(baseline.reaching, candidate.reaching)
    return verdict.counts if verdict and verdict.first and verdict.p < 1 - confidence else None


def in_words(reaching: Counts, of_unit: str) -> str:
    by = f" by {reaching.horizon:.4g}{of_unit}" if math.isfinite(reaching.horizon) else ""
    own = f"{reaching.other_reached} of {counted(reaching.m, 'run')}"
    return f"{own}, and {reaching.reached} of {reaching.n} of the baseline{by}"


def what_keeps_from_passing(baseline: Side, candidate: Side) -> str:
    """In words, that the candidate fails or misses more often than the baseline; "" where it does not."""
    if candidate.num_failed * baseline.num_ended > baseline.num_failed * candidate.num_ended:
        failed = f"{candidate.num_failed} of {counted(candidate.num_ended, 'run')} of the candidate failed"
        return f"{failed} ({kinds(candidate.failed)}), of the baseline {baseline.num_failed} of {baseline.num_ended}"
    missed, of_baseline = (len(side.times.missed) + side.times.num_diverged for side in (candidate, baseline))
    known, baseline_known = (side.times.n - len(side.times.stopped) for side in (candidate, baseline))
    if missed * baseline_known > of_baseline * known:
        words = f"{missed} of {counted(known, 'run')} of the candidate did not reach the target"
        return f"{words}, of the baseline {of_baseline} of {baseline_known}"
    return ""


def shares_reached(baseline: Side, candidate: Side) -> str:
    words = [f"{name} {reached(side)}" for name, side in (("baseline", baseline), ("candidate", candidate))]
    return f"; reached the target: {', '.join(words)}"


def ratio_observed(slow: Times, fast: Times) -> Estimate | None:
    """The ratio of the means; a bound of it where runs of one side did not get there, None where of both."""
    top, bottom = estimate(slow), estimate(fast)
    return ratio(top, bottom) if top and bottom else None


def compared(slow: Times, fast: Times, limit: float, confidence: float, paired: bool = False) -> int:
    """The exit code by the runs alone, two a side at least: is mean(slow) / mean(fast) above or below the limit?"""
    above, below = exceeds(slow, fast, limit, paired), falls_below(slow, fast, limit, paired)
    assert above is not None
    assert below is not None
    if above < 1 - confidence:
        return SLOWER
    equal = above == below == 1.0 and not slow.num_short + fast.num_short  # Neither side scatters.
    return NOT_SLOWER if below < 1 - confidence or equal else CANNOT_TELL


def percent(share: float) -> str:
    return f"{100 * share:+.3g}%"


def advised(
    slow: Times, fast: Times, margin: float, confidence: float, names: tuple[str, str], paired: bool = False
) -> str:
    """How many repeats would tell, by the spread observed: if there is no slowdown, and if it is the one observed.

    `names` are those of the slow and of the fast side.
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
            "By this spread no number of repeats would tell: allow more (--max-slowdown), or measure with less spread"
        )
    coarse = any(side.interval / 2 > statistics.stdev(side.reached) for side in (slow, fast))
    words = (
        f"Runs a side that would tell, with a probability of {POWER:.0%}, by the spread of these: {', '.join(parts)}"
    )
    return ON_EVALUATIONS + words if coarse else words


def runs_needed(needed: Needed, there: tuple[int, int], names: tuple[str, str]) -> str:
    """A number of runs a side, or of the one side that has too few; with that for the upper end of the spread."""
    sizes = needed.first, needed.second
    most = f"up to {max(needed.most)}" if needed.most else "or far more"
    growing = [place for place in (0, 1) if sizes[place] > there[place]]
    if len(growing) == 1:
        place = growing[0]
        return f"{sizes[place]} of the {names[place]} ({most})"
    return f"{max(sizes)} ({most})"
