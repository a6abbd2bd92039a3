"""What limited a run, from its folder alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tracking.base import quantities
from tracking.measure.bottleneck import (
    activity,
    advice,
    ceilings,
    energy_figures,
    possible,
    quicker_stack,
    rank_limits,
    roofline,
    run_options,
    slow_rank,
    time_shares,
)
from tracking.measure.bottleneck.ceilings import Ceilings
from tracking.measure.training import clock, spans
from tracking.record import Journal, Record, attempts, documents, journal, node_records, run_folder

EXCHANGE = "gradient_exchange"  # tracking.measure.training's event with the duration of an exchange
GPU_EVIDENCE = (
    "engine_activity", "sm_activity", "tensor_activity", "fp32_activity", "dram_bandwidth", "power_throttled",
    "thermal_throttled", "sm_clock",
)  # fmt: skip


@dataclass(frozen=True)
class Findings:
    """`metrics` by MLflow key, and `bottleneck` for result.json.

    `bottleneck` has cause, words, why, next, shares, evidence and missing; shared_cores if co-tenants had a large
    share; with several ranks also ranks, and slow_rank if one holds up the others.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    bottleneck: dict[str, Any] = field(default_factory=dict)


def explain(folder: Path, neighbours: str = "") -> dict[str, Any]:
    """What limited a run that has just ended, for its result; journals the figures.

    `neighbours` is the value of that tag: who else computed there. {} after any error, such as a full disk, a clock
    that went back or an unexpected record: a run is complete without it.
    """
    try:
        records = [record for record, _ in journal.read(folder / run_folder.JOURNAL)]
        ceilings.copy_into(folder, _latest(records, "tags"))
        findings = examine(folder, neighbours)
        if findings.metrics:
            log = Journal(folder / run_folder.JOURNAL)
            log.metrics(findings.metrics)
            log.close()
    except Exception as error:  # the run keeps its result in any case
        logging.getLogger(__name__).warning("no bottleneck for this run: %s: %s", type(error).__name__, error)
        return {}
    return findings.bottleneck


def verdict_lines(folder: Path) -> list[str]:
    """Lines for the terminal: the limit of a run that has just ended, why, and what to try; [] if not known."""
    try:
        limits = examine(folder).bottleneck
    except Exception:  # the user's script continues; the companion's log has the reason
        return []
    headings = (("limited by", "words"), ("why", "why"), ("try first", "next"))
    return [f"{heading}: {limits[key]}" for heading, key in headings if limits.get(key)]


def examine(folder: Path, neighbours: str = "") -> Findings:
    """The findings on a run; empty if it never trained. Raises OSError, and ValueError for another kind of folder."""
    records = [record for record, _ in journal.read(folder / run_folder.JOURNAL)]
    events = attempts.split([record for record in records if record.kind == "event"])[-1]
    start, stop = clock.first(events, "run_start"), clock.first(events, "run_stop")
    if start is None or stop is None or stop.clock_sec <= start.clock_sec:
        return Findings()
    tags, params = _latest(records, "tags"), _latest(records, "params")
    measured = ceilings.read_from(folder)
    newest_records = _newest_attempt(records)
    times = _with_phases(_timed_parts(events, start, stop), newest_records)
    means = activity.means(newest_records, spans.training(events))
    precision = time_shares.precision_of(params.get("precision", ""), means)
    shares = time_shares.divide(times, means, _ceiling_shares(measured, precision), _on_gpu(tags))
    words = time_shares.words(shares)
    metrics = {quantities.bottleneck(name): round(share, 4) for name, share in shares.items()}
    metrics |= activity.traffic(newest_records, (start.clock_sec, stop.clock_sec))
    metrics |= _traffic_of_other_nodes(folder, start, stop)
    metrics |= energy_figures.figures(folder, newest_records, start, stop)
    metrics |= activity.utilization(means, measured, _indices(folder))
    point = roofline.run_point(events, means, measured)
    metrics |= roofline.metrics(point)
    metrics |= roofline.ceiling_share(point, measured, tags.get("env.gpu", ""), params.get("precision", ""))
    by_rank = rank_limits.of_run(folder, newest_records, events, spans.training(events), neighbours)
    options = run_options.of_run(folder, params, newest_records, events, times.training)
    cause, quicker = time_shares.limit(shares), quicker_stack.of_run(folder) if options.ours else None
    bottleneck = {
        **advice.lines(cause, words, times, means, options, by_rank.get("slow_rank", {}), neighbours, quicker),
        **by_rank,
        "shares": {name: round(share, 4) for name, share in shares.items()},
        "evidence": _evidence(means),
        "total_sec": round(times.total, 4),
        "possible": possible.rows(shares, times.total, means, measured, precision, metrics),
        "missing": [
            *_missing(tags, params, means, times, measured),
            *([roofline.NO_FLOPS] if _on_gpu(tags) and roofline.RATE not in metrics else []),
            *energy_figures.missing(folder, records, metrics, advice.shared_cores(neighbours, means)),
        ],
    }
    return Findings(metrics, bottleneck)


def _newest_attempt(records: Sequence[Record]) -> Sequence[Record]:
    """The records since the newest resume. Earlier times do not compare: the machine's clock may have restarted."""
    resumes = [index for index, record in enumerate(records) if record.key == attempts.RESUME]
    return records[resumes[-1] :] if resumes else records


def _traffic_of_other_nodes(folder: Path, start: Record, stop: Record) -> dict[str, float]:
    """The traffic of non-head nodes, whose times are converted by the wall clock that the nodes share."""
    figures: dict[str, float] = {}
    for file in node_records.other_journals(folder):
        rows = (record for record, _ in journal.read(folder / file))
        records = [replace(record, clock_sec=record.time_ms / 1e3) for record in rows]
        figures |= activity.traffic(records, (start.time_ms / 1e3, stop.time_ms / 1e3), node_records.node_of(file))
    return figures


def _timed_parts(events: Sequence[Record], start: Record, stop: Record) -> time_shares.Clock:
    within = [event for event in events if start.clock_sec <= event.clock_sec <= stop.clock_sec]
    windows = [event.values for event in within if event.key == "throughput_window"]
    waits = [sum(row) for row in zip(*(values.get("rank_wait_ms") or () for values in windows), strict=False)]
    evaluation, checkpoint = (
        sum(end - begin for begin, end in clock.intervals(within, name)) for name in ("eval", "checkpoint")
    )
    ranks = slow_rank.ranks(windows)
    return time_shares.Clock(
        total=stop.clock_sec - start.clock_sec,
        evaluation=evaluation,
        checkpoint=checkpoint,
        training=sum(end - begin for begin, end in spans.training(within)),
        data=max(waits) / 1e3 if waits else None,
        exchange=_exchange(events, windows, ranks),
        gc=_largest_rank_sec(windows, "rank_gc_ms"),
        imbalance=slow_rank.imbalance(ranks),
        update=_largest_rank_sec(windows, "rank_update_ms"),
    )


def _with_phases(times: time_shares.Clock, records: Sequence[Record]) -> time_shares.Clock:
    """Add the seconds of self-play and of the gate, which MiniGo logs once a generation.

    The first step of a generation waits for its positions, and that is self-play, not data.
    """
    logged = [record.values for record in records if record.kind == "metrics"]
    phases = {
        cause: sum(float(values.get(f"{cause}/sec", 0.0)) for values in logged)
        for cause in ("selfplay", "gate")
        if any(f"{cause}/sec" in values for values in logged)
    }
    data = None if times.data is None else max(0.0, times.data - phases.get("selfplay", 0.0))
    return replace(times, phases=phases, data=data)


def _exchange(events: Sequence[Record], windows: slow_rank.Windows, ranks: Sequence[slow_rank.Rank]) -> float | None:
    """Seconds of the exchange itself: its time on the rank that waits least for the others."""
    if any(rank.exchange for rank in ranks):
        return min(rank.exchange for rank in ranks)
    measurement = clock.first(events, EXCHANGE)  # from an earlier version, or a graph that runs as a whole
    steps = sum(len(values.get("step_ms") or ()) for values in windows)
    return steps * float(measurement.values["mean_ms"]) / 1e3 if measurement else None


def _largest_rank_sec(windows: slow_rank.Windows, key: str) -> float | None:
    """The largest sum of a field over a rank's windows, in seconds; None if no window has the field."""
    rows = [values[key] for values in windows if values.get(key)]
    return max(sum(row) for row in zip(*rows, strict=False)) / 1e3 if rows else None


def _ceiling_shares(measured: Ceilings | None, precision: str) -> dict[str, float]:
    """Each counter's value at its ceiling, in percent; 100 without a measurement."""
    product = f"matmul/{precision}"
    work = {"dram": "copy", "tensor": product} | ({"fp32": product} if precision == "fp32" else {})
    counters = {cause: time_shares.COUNTERS[cause].removeprefix("gpu_") for cause in work}
    return {cause: (measured and measured.counter(work[cause], counters[cause])) or 100.0 for cause in work}


def _evidence(means: Mapping[str, float]) -> dict[str, float]:
    keys = [f"gpu_{name}_percentage" for name in GPU_EVIDENCE] + ["run_cpu_percentage"]
    return {key: round(means[key], 2) for key in keys if key in means}


def _missing(
    tags: Mapping[str, str], params: Mapping[str, str], means: Mapping[str, float], times: time_shares.Clock,
    measured: Ceilings | None,
) -> list[str]:  # fmt: skip
    """Sentences for the user on what was not measured."""
    missing = []
    on_gpu = _on_gpu(tags)
    if on_gpu and not any(key.startswith("gpu_") for key in means):
        missing.append("no sample of the GPU lies within the training: it was too short, or samples are off")
    elif not on_gpu and "run_cpu_percentage" not in means:
        missing.append("no sample of the CPU lies within the training: it was too short, or samples are off")
    elif on_gpu and "gpu_engine_activity_percentage" not in means:
        missing.append("this GPU or its driver does not report how busy its parts are (NVML's GPM, Hopper and later)")
    if on_gpu and measured is None:
        missing.append(roofline.NO_CEILINGS)
    if times.data is None:
        missing.append("steps were not timed, so waiting for data is not known")
    if times.exchange is None:
        missing += _why_no_exchange(tags, params)
    return missing


def _why_no_exchange(tags: Mapping[str, str], params: Mapping[str, str]) -> list[str]:
    """Why the exchange was not timed; [] for one process.

    A program has no tag for its exchange. Its nodes and the head node's GPUs show whether it has several processes.
    """
    overlap = tags.get("overlap_grad_reduce")
    has_several = max(int(tags.get("env.gpu_count") or 0), int(params.get("nodes") or 0)) > 1
    if tags.get("strategy") == "fsdp":
        return ["too few steps to time the exchange of weights and gradients"]
    if overlap == "false":
        return ["too few steps to time the exchange of gradients"]
    return ["the exchange of gradients overlaps the backward pass, and was not timed"] if overlap or has_several else []


def _on_gpu(tags: Mapping[str, str]) -> bool:
    return tags.get("env.gpu", "none") != "none"


def _latest(records: Sequence[Record], kind: str) -> dict[str, str]:
    """All tags or params, each with its latest value."""
    latest: dict[str, str] = {}
    for record in records:
        if record.kind == kind:
            latest |= {key: str(value) for key, value in record.values.items()}
    return latest


def _indices(folder: Path) -> list[int]:
    """The indices of the GPUs in use, from the fingerprint."""
    try:
        used = documents.read_json(folder / run_folder.FINGERPRINT).get("used", [])
        return [int(gpu["index"]) for gpu in used if "index" in gpu]
    except (OSError, ValueError, TypeError, AttributeError):  # missing or damaged
        return []
