"""The summary of a run that came to its end: from the journal's events and the meter's windows to MLflow keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf.schema import RunConfig
from tracking.machine.environment import fingerprint
from tracking.measure.training import clock, throughput
from tracking.record import Journal, Record, attempts, evaluations, journal, run_folder

if TYPE_CHECKING:
    from tracking.measure.training.meter import Meter


def devices(config: RunConfig, meter: Meter, flops_per_sample: float | None, gpu: str) -> dict[str, float]:
    """Summary metrics that every process has a part in: rates, energy, memory. A collective call."""
    world_size = meter.ranks.size
    figures = throughput.summarize(meter.windows, world_size) | meter.energy
    figures["world_size"] = float(world_size)
    if "energy/joules" in figures and meter.samples:
        figures["energy/joules_per_sample"] = figures["energy/joules"] / meter.samples
    if config.on_gpu():
        import torch  # Here alone: a program's summary is written where there may be none.

        figures["memory/peak_allocated_bytes"] = meter.ranks.largest(torch.cuda.max_memory_allocated())
    rate = figures.get("throughput/samples_per_sec")
    if flops_per_sample is not None and rate is not None:
        utilization = throughput.model_flops_utilization(flops_per_sample, rate, gpu, world_size, config.precision.name)
        if utilization is not None:
            figures["throughput/model_flops_utilization"] = utilization
    return figures


def cost(config: RunConfig, events: Sequence[Record], times: dict[str, float]) -> dict[str, float]:
    """Instance price x time x nodes, over the timed window, of each attempt; empty without a price."""
    price = config.instance.price_per_hour
    if price is None or clock.first(events, "run_stop") is None:
        return {}
    usd_per_sec = price * config.nodes / 3600
    costs = {"cost/usd": usd_per_sec * attempts.trained_sec(events)}
    if "time/to_accuracy_sec" in times:
        costs["cost/to_accuracy_usd"] = usd_per_sec * times["time/to_accuracy_sec"]
    return costs


def best(config: RunConfig, evaluated: Sequence[Record]) -> dict[str, float]:
    """The best value of every target metric, or of the model's metrics where there is no target."""
    rows = [event.values["metrics"] for event in evaluated]
    targets = config.targets()
    return evaluations.best(rows, list(targets or config.model.metrics or (rows[0] if rows else ())), targets)


def write(
    config: RunConfig, run_dir: Path, log: Journal, windows: Sequence[throughput.Window], measured: dict[str, float],
    unit: str,
    without: tuple[str, ...] = (), by_node: Sequence[dict[str, Any]] = (),
) -> None:  # fmt: skip
    """Complete the summary with the clock, journal it, and write the result.

    `by_node` says what each machine took (see node_spread). Figures whose keys begin with one of `without` are not
    known of this run.
    """
    events = journal.events(run_dir / run_folder.JOURNAL)
    times = clock.summarize(events, config.targets())
    evaluated = [event for event in attempts.history(events) if event.key == "eval_accuracy"]
    metrics = evaluations.finite(times | best(config, evaluated) | measured | cost(config, events, times))
    metrics = {key: value for key, value in metrics.items() if not (without and key.startswith(without))}
    if "resume/count" in metrics:
        metrics.pop("energy/to_accuracy_joules", None)  # It would be compared with that of an uninterrupted run.
    # MLflow draws a figure at step 0 as a bar, beside those of other runs, and at any other as a curve of one dot. A
    # figure that has a curve goes behind all of it, where MLflow looks for its value, also behind an earlier attempt's.
    records = (record for record, _ in journal.read(run_dir / run_folder.JOURNAL))
    curves = {key for record in records if record.kind == "metrics" for key in record.values}
    log.metrics({key: value for key, value in metrics.items() if key in curves}, attempts.last_step(events))
    log.metrics({key: value for key, value in metrics.items() if key not in curves})
    result = run_folder.Result(
        status="finished",
        metrics=metrics,
        targets=config.targets(),
        windows=throughput.spread(windows),
        evaluations=[
            {"clock_sec": event.clock_sec, **event.values, "metrics": evaluations.finite(event.values["metrics"])}
            for event in evaluated
        ],
        unit=unit,
        nodes=list(by_node),
        resumes=[event.values | {"time_ms": event.time_ms} for event in events if event.key == attempts.RESUME],
        changed=fingerprint.changes(fingerprint.taken(run_dir)),
    )
    run_folder.write_result(run_dir, result)
