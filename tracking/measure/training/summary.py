"""The summary of a finished run: from the journal's events and the meter's windows to MLflow keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf.schema import RunConfig
from tracking.base import quantities
from tracking.machine.environment import fingerprint
from tracking.measure.training import clock, start_times, throughput
from tracking.record import UNKNOWN_TAG, Journal, Record, attempts, evaluations, journal, run_folder

if TYPE_CHECKING:
    from tracking.measure.training.meter import Meter

UNKNOWN_FIGURES = "unknown_figures"  # the event with prefixes of the figures that a script's loop leaves unknown


def device_figures(config: RunConfig, meter: Meter, flops_per_sample: float | None, gpu: str) -> dict[str, float]:
    """Summary metrics over all processes: rates, energy, memory. A collective call."""
    world_size = meter.ranks.size
    figures = throughput.summarize(meter.windows, world_size) | meter.energy
    figures[quantities.WORLD_SIZE] = float(world_size)
    if quantities.ENERGY_JOULES in figures and meter.samples:
        figures[quantities.ENERGY_JOULES_PER_SAMPLE] = figures[quantities.ENERGY_JOULES] / meter.samples
    if config.on_gpu():
        import torch  # imported here, since a program's worker may not have it

        figures[quantities.MEMORY_PEAK_ALLOCATED_BYTES] = meter.ranks.largest(torch.cuda.max_memory_allocated())
    rate = figures.get(quantities.THROUGHPUT_SAMPLES_PER_SEC)
    if flops_per_sample is not None and rate is not None:
        utilization = throughput.model_flops_utilization(flops_per_sample, rate, gpu, world_size, config.precision.name)
        if utilization is not None:
            figures[quantities.THROUGHPUT_MODEL_FLOPS_UTILIZATION] = utilization
    return figures


def cost(config: RunConfig, events: Sequence[Record], times: dict[str, float]) -> dict[str, float]:
    """Instance price x nodes x time in the timed windows of all attempts; {} without a price.

    The clock ends with `run_stop`. What is journaled later, such as a checkpoint that was still being written, is not
    in it.
    """
    price = config.instance.price_per_hour
    stops = [index for index, event in enumerate(events) if event.key == "run_stop"]
    if price is None or not stops:
        return {}
    usd_per_sec = price * config.nodes / 3600
    costs = {quantities.COST_USD: usd_per_sec * attempts.trained_sec(events[: stops[-1] + 1])}
    if quantities.TIME_TO_ACCURACY_SEC in times:
        costs[quantities.COST_TO_ACCURACY_USD] = usd_per_sec * times[quantities.TIME_TO_ACCURACY_SEC]
    return costs


def best(config: RunConfig, eval_events: Sequence[Record]) -> dict[str, float]:
    """The best value of every metric with a known direction, the target's first."""
    rows = [event.values["metrics"] for event in eval_events]
    return evaluations.best(rows, [*dict.fromkeys([*config.targets(), *config.directions()])], config.directions())


def last(eval_events: Sequence[Record]) -> dict[str, float]:
    """The metrics of the last evaluation, by key."""
    rows = [event.values["metrics"] for event in eval_events[-1:]]
    return {quantities.EVAL + name: value for row in rows for name, value in row.items()}


def start_facts(
    config: RunConfig, events: Sequence[Record], fingerprints: Sequence[fingerprint.Fingerprint]
) -> dict[str, Any]:
    """The facts that decide a start's duration, and the graphs compiled and cached; {} for a start without parts."""
    if clock.first(events, "import_start") is None or not fingerprints:
        return {}
    tags, compiled = fingerprint.tags(fingerprints[0]), clock.first(events, start_times.COMPILED_EVENT)
    counts = {name: compiled.values[name] for name in ("num_cached", "num_compiled")} if compiled else {}
    return {
        "model": config.model.name,
        "precision": config.precision.name,
        "batch_size": config.device_batch_size(),
        quantities.WORLD_SIZE: config.world_size(),
        "compile": config.compiled(),
        "stack": config.stack.name,
        **{name: tags[f"env.{name}"] for name in ("stack_id", "hardware_id") if f"env.{name}" in tags},
        **counts,
    }


def write(
    config: RunConfig, run_dir: Path, log: Journal, windows: Sequence[throughput.Window],
    device_metrics: dict[str, float], unit: str,
    omit_prefixes: tuple[str, ...] = (), by_node: Sequence[dict[str, Any]] = (),
) -> None:  # fmt: skip
    """Complete the summary with the clock's figures, journal it, and write the result.

    `by_node` is the result of `steps_by_node`. `omit_prefixes` are prefixes of keys that are unknown for this run.
    """
    events = journal.events(run_dir / run_folder.JOURNAL)
    times = clock.summarize(events, config.targets())
    eval_events = [event for event in attempts.history(events) if event.key == "eval_accuracy"]
    metrics = evaluations.finite(times | best(config, eval_events) | device_metrics | cost(config, events, times))
    if omit_prefixes:
        log.event(UNKNOWN_FIGURES, keys=list(omit_prefixes))  # Else the audit computes them from the events.
        log.tags({UNKNOWN_TAG: ",".join(omit_prefixes)})  # Else a report takes the last value of a curve.
        metrics = {key: value for key, value in metrics.items() if not key.startswith(omit_prefixes)}
    if quantities.RESUME_COUNT in metrics:
        # Else a report compares it with that of an uninterrupted run.
        metrics.pop(quantities.ENERGY_TO_ACCURACY_JOULES, None)
    # MLflow draws a figure at step 0 as a bar beside other runs', and at any other step as a curve with one dot. If the
    # key already has a curve, the figure goes at the last step of all attempts, where MLflow looks for its value.
    records = (record for record, _ in journal.read(run_dir / run_folder.JOURNAL))
    curves = {key for record in records if record.kind == "metrics" for key in record.values}
    log.metrics({key: value for key, value in metrics.items() if key in curves}, attempts.last_step(events))
    log.metrics({key: value for key, value in metrics.items() if key not in curves})
    result = run_folder.Result(
        status="finished",
        metrics=evaluations.finite(last(eval_events)) | metrics,  # The journal has these as curves.
        targets=config.targets(),
        directions=config.directions(),
        windows=throughput.rate_quartiles(windows),
        evaluations=[
            {"clock_sec": event.clock_sec, **event.values, "metrics": evaluations.finite(event.values["metrics"])}
            for event in eval_events
        ],
        unit=unit,
        start=start_facts(config, events, fingerprint.taken(run_dir)),
        nodes=list(by_node),
        resumes=[event.values | {"time_ms": event.time_ms} for event in events if event.key == attempts.RESUME],
        changed=fingerprint.changes(fingerprint.taken(run_dir)),
    )
    run_folder.write_result(run_dir, result)


def steps_by_node(windows: Sequence[throughput.Window], names: Sequence[str]) -> list[dict[str, Any]]:
    """For each node, the mean step time in ms of its slowest rank, and the share of it that the rank waited for data.

    `names` is each rank's machine. The slowest node comes first. [] for one machine, or without windows. The share is
    absent if a loop does not report when its batches were ready. Ranks wait for each other in the exchange of
    gradients, so step times differ less than the machines do.
    """
    steps = sum(len(window.step_sec) for window in windows)
    if len(set(names)) < 2 or not steps:
        return []
    rows: list[dict[str, Any]] = []
    for node in dict.fromkeys(names):
        ranks = [rank for rank, name in enumerate(names) if name == node]
        seconds = {rank: sum(window.rank_sec[rank] for window in windows) for rank in ranks}
        slowest = max(ranks, key=lambda rank: seconds[rank])
        row: dict[str, Any] = {"node": node, "step_ms": 1e3 * seconds[slowest] / steps}
        if all(window.rank_wait_sec for window in windows):
            row["data_wait_fraction"] = sum(window.rank_wait_sec[slowest] for window in windows) / seconds[slowest]
        rows.append(row)
    return sorted(rows, key=lambda row: -row["step_ms"])
