"""The tables with a row per setting: its facts and figures, what limited it, and its utilisation."""

from __future__ import annotations

from tracking.analysis.audit.arithmetic import moments_of
from tracking.analysis.audit.evidence import (
    BUSY,
    CAUSES,
    FACTS,
    LIMITS,
    OVER_FP32,
    QUANTITIES,
    RATIOS,
    SPEEDS,
    Content,
    Labels,
    Rows,
    facts_of,
    largest,
    mean_of,
    these,
)
from tracking.analysis.audit.journals import PREFIX
from tracking.base import quantities


def settings(content: Content, workload: str) -> Rows:
    evidence, rows = content.evidence, {}
    others = {*BUSY, *LIMITS, *OVER_FP32, *_of_evaluations(content, workload)}
    headings = [heading for heading in content.headings(workload) if heading not in others]
    shares = any(evidence.ends(workload, setting) for setting in evidence.settings(workload))
    for setting in evidence.settings(workload):
        ended = list(evidence.ended(workload, setting).values())
        counting, every = evidence.counting(workload, setting), evidence.all_of(workload, setting)
        full = [run for run in every.values() if run.failure == "oom"]
        row: Rows = {**setting, "n": f"{len(counting)} of {len(every)}{f'; {len(full)} out of memory' if full else ''}"}
        row["devices"] = these({f"{size:g}" for run in ended if (size := run.devices()) is not None})
        row |= {heading: facts_of(ended, key) for heading, key in FACTS.items() if key not in evidence.axes}
        row |= {"reached": evidence.ends(workload, setting)} if shares else {}
        rows[_key(setting)] = row | {heading: content.cell(workload, setting, heading) for heading in headings}
    return rows


def _key(setting: Labels) -> str:
    return " ".join(setting.values())


def _of_evaluations(content: Content, workload: str) -> list[str]:
    """The headings of metrics of evaluations."""
    figures = [figure for figure in content.report["figures"] if figure["workload"] == workload]
    return list(dict.fromkeys(each["figure"] for each in figures if each["key"].startswith(quantities.EVAL)))


def metrics(content: Content, workload: str) -> Rows:
    """The best and the last value of each metric."""
    headings = _of_evaluations(content, workload)
    settings = content.evidence.settings(workload) if headings else []
    return {
        _key(setting): {**setting, **{heading: content.cell(workload, setting, heading) for heading in headings}}
        for setting in settings
    }


def limits(content: Content, workload: str) -> Rows:
    """The shares of each setting's time, and the largest of them."""
    headings = [heading for heading in content.headings(workload) if heading in LIMITS]
    rows = {}
    for setting in content.evidence.settings(workload):
        means = {}
        for words, cause in CAUSES.items():
            sample = content.evidence.sample(workload, setting, f"{PREFIX}{cause}_fraction")
            if moments := moments_of(sample):
                means[words] = moments[1]
        if means and headings:
            cells = {heading: content.cell(workload, setting, heading) for heading in headings}
            rows[_key(setting)] = {**setting, "limited by": largest(means), **cells}
    return rows


def utilization(content: Content, workload: str) -> Rows:
    """The means of each setting, and its speed over that of the same setting in fp32.

    A speed has a column if any setting has a mean of it, even if the mean is only a bound.
    """
    evidence, there = content.evidence, content.headings(workload)
    busy = [heading for heading in there if heading in BUSY]
    if not busy:
        return {}
    settings = evidence.settings(workload)
    over = any({**setting, "precision": "fp32"} in settings for setting in settings if "precision" in setting)
    ratios = [ratio for speed, ratio in zip(SPEEDS, OVER_FP32, strict=True) if over and speed in there]
    rows: Rows = {}
    for setting in settings:
        rows[_key(setting)] = {**setting, **{name: content.cell(workload, setting, name) for name in [*ratios, *busy]}}
    for speed in SPEEDS:
        key, scale = QUANTITIES[speed]
        samples = {_key(setting): evidence.sample(workload, setting, key) for setting in settings}
        if any(map(moments_of, samples.values())):
            for setting in settings:
                own = content.cell(workload, setting, speed) or mean_of(samples[_key(setting)], scale, key)
                rows[_key(setting)][speed] = own
    return rows


def speed_ups(content: Content) -> Rows:
    """A row per workload and combination of other axes, a column per number of devices."""
    evidence = content.evidence
    rows: Rows = {}
    clocks = (quantities.TIME_TO_ACCURACY_SEC, quantities.TIME_TO_ACCURACY_TRAIN_SEC)
    key = clocks[0] if evidence.metric in clocks else quantities.THROUGHPUT_SAMPLES_PER_SEC
    heading = next(heading for heading, (of, of_growth) in RATIOS.items() if of == key and not of_growth)
    counts: set[str] = set()
    for workload in evidence.workloads():
        for setting in evidence.settings(workload):
            devices = evidence.devices(workload, setting)
            if devices and (text := content.cell(workload, setting, heading)):
                name = evidence.line_name(workload, setting)
                row = rows.setdefault(f"{workload} {name}", {"workload": workload, "setting": name})
                row[f"{devices:g} devices"] = text
                counts.add(f"{devices:g} devices")
    return {name: dict.fromkeys(sorted(counts), "") | row for name, row in rows.items()}
