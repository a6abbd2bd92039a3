"""The figures that a report should have, from the journals: their runs, mean, error and olympic mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tracking.analysis.audit.arithmetic import Moments, is_invalid, moments_of, ratio, text_of, tolerance
from tracking.analysis.audit.evidence import (
    BUSY,
    LEAST_SHARE,
    LIMITS,
    OF_TARGETS,
    OVER_FP32,
    QUANTITIES,
    RATIOS,
    Evidence,
    Labels,
    Near,
    That,
    name_of,
)
from tracking.analysis.audit.journals import BEST
from tracking.base import quantities
from tracking.base.quantities import quantity

Record = Mapping[str, Any]


def identity(figure: Record) -> str:
    over = f" over {name_of(figure['over'])}" if figure.get("over") is not None else ""
    return f"{figure.get('workload')}, {name_of(figure.get('setting'))}: {figure.get('figure')}{over}"


def expected(evidence: Evidence) -> dict[str, dict[str, Any]]:
    """All expected figures, by identity."""
    made = (
        record
        for workload in evidence.workloads()
        for setting in evidence.settings(workload)
        for record in (*_means(evidence, workload, setting), *_ratios(evidence, workload, setting))
    )
    return {identity(record): record for record in made}


def shown(evidence: Evidence, workload: str) -> dict[str, tuple[str, float]]:
    """The headings of a workload's figures, with their metrics and the factors to the headings' units."""
    ended = [run for setting in evidence.settings(workload) for run in evidence.ended(workload, setting).values()]
    named = sorted({BEST + name for run in ended for name in run.with_best})
    known = [key for key in named if evidence.better(workload, key)]
    both = [prefix + quantities.metric_name(key) for key in known for prefix in (BEST, quantities.EVAL)]
    evaluated = {quantity(key).heading: (key, 1.0) for key in both}
    busy = {heading: (key, 1.0) for heading, key in BUSY.items()}
    present = {
        heading: (key, scale)
        for heading, (key, scale) in (QUANTITIES | evaluated | busy).items()
        if any(evidence.values(workload, setting, key) for setting in evidence.settings(workload))
    }
    if not any(run.missed for run in ended):
        present.pop("epochs trained", None)
    if all(run.value(quantities.EVALUATIONS_TO_ACCURACY) == run.value(quantities.EPOCHS_TO_ACCURACY) for run in ended):
        present.pop("evaluations", None)
    limits = {
        heading: (key, 100.0)
        for heading, key in LIMITS.items()
        if any(_mean(evidence, workload, setting, key) >= LEAST_SHARE for setting in evidence.settings(workload))
    }
    return present | limits


def _mean(evidence: Evidence, workload: str, setting: Labels, key: str) -> float:
    moments = moments_of(evidence.sample(workload, setting, key))
    return moments[1] if moments else 0.0


def _means(evidence: Evidence, workload: str, setting: Labels) -> Iterator[dict[str, Any]]:
    for heading, (key, scale) in shown(evidence, workload).items():
        sample = evidence.sample(workload, setting, key)
        if moments := moments_of(sample, scale):
            bound, invalid = sample.sign, is_invalid(len(sample), sample.num_short)
            runs = [*evidence.values(workload, setting, key)]
            yield _record(evidence, (workload, setting, heading, None), key, moments, bound, runs, invalid)


def _ratios(evidence: Evidence, workload: str, setting: Labels) -> Iterator[dict[str, Any]]:
    settings = evidence.settings(workload)
    of_devices = evidence.base(workload, setting, settings)
    full = {**setting, "precision": "fp32"}
    of_fp32 = full if "precision" in setting and full in settings else None
    bases = {heading: (key, of_devices, of_growth) for heading, (key, of_growth) in RATIOS.items()}
    if any(heading in BUSY for heading in shown(evidence, workload)):
        bases |= {heading: (key, of_fp32, False) for heading, key in OVER_FP32.items()}
    for heading, (key, base, of_growth) in bases.items():
        devices = [evidence.devices(workload, side) for side in (setting, base or setting)]
        if base is None or None in devices:
            continue
        own, other = (evidence.sample(workload, side, key) for side in (setting, base))
        growth = devices[0] / devices[1] if of_growth else 1.0  # type: ignore[operator]
        if quotient := ratio(key, own, other, growth, setting == base):
            runs = [*evidence.values(workload, setting, key)]
            yield _record(evidence, (workload, setting, heading, base), key, *quotient, runs)


def _record(
    evidence: Evidence, place: tuple[str, Labels, str, Labels | None], key: str, moments: Moments, bound: str,
    runs: Sequence[str], invalid: bool = False,
) -> dict[str, Any]:  # fmt: skip
    workload, setting, heading, base = place
    (n, mean, error, olympic), near = moments, tolerance(key)
    of = {*runs}
    if key not in OF_TARGETS:
        of |= {*evidence.lost(workload, setting, key)}
    else:
        of |= {*evidence.short(workload, setting), *evidence.stopped(workload, setting)}
    return {
        "workload": workload, "setting": dict(setting), "figure": heading, "key": key, "n": n,
        "mean": Near(mean, near), "bound": bound, "standard_error": Near(error, near, mean),
        "olympic_mean": Near(olympic, near), "text": "", "invalid": invalid, "runs": _these(evidence, of),
        "over": None if base is None else dict(base),
    }  # fmt: skip


def _these(evidence: Evidence, uids: set[str]) -> That:
    """Accepts exactly these runs, in any order."""
    words = f"{len(uids)}: {', '.join(sorted(evidence.runs[uid].name for uid in uids))}"
    return That(lambda ids: len(ids) == len(uids) and {evidence.uid_of(run_id) for run_id in ids} == uids, words)


def as_printed(claimed: Record, expected: Record) -> dict[str, Any]:
    """The expected record, with the text that the report's own numbers give."""
    try:
        mean, error, olympic, bound = (claimed[key] for key in ("mean", "standard_error", "olympic_mean", "bound"))
        text = text_of(mean, error, olympic, bound, expected["invalid"])
    except (KeyError, TypeError, ValueError, OverflowError):  # Altered numbers are noted by themselves.
        text = ""
    return {name: value for name, value in expected.items() if name != "invalid"} | {"text": text}
