"""MLPerf's log of a run's folder: one line `:::MLLOG {json}` per event, with the times of the run's journal.

mlperf_logging.compliance_checker reads it (--usage training --ruleset 0.7.0). mlperf_logging.mllog defines the format:
github.com/mlcommons/logging.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from conf.schema import RunConfig
from conf.target import Target
from tracking.analysis.mlperf.benchmarks import Benchmark, benchmark_of
from tracking.record import Record, attempts, documents, evaluations, journal, run_folder

LOG = "mlperf.log"
TOKEN = ":::MLLOG "
POINT = "POINT_IN_TIME"
COUNTS = ("train_samples", "eval_samples")
# The journal's events that MLPerf has under the same name, with their types in mllog.
TYPES = {
    "init_start": "INTERVAL_START",
    "init_stop": "INTERVAL_END",
    "run_start": "INTERVAL_START",
    "epoch_start": "INTERVAL_START",
    "epoch_stop": "INTERVAL_END",
    "eval_start": "INTERVAL_START",
    "eval_stop": "INTERVAL_END",
    "eval_accuracy": POINT,
    "run_stop": "INTERVAL_END",
} | dict.fromkeys(COUNTS, POINT)


def write(folder: Path) -> bool:
    """Write the log into a run's folder, if the run finished an MLPerf benchmark; return whether it did.

    Raises OSError, and ValueError for a folder with a damaged file.
    """
    result = run_folder.read_result(folder)
    if result is None or result.status != "finished":
        return False
    config = run_folder.read_config(folder)
    if benchmark_of(config) is None:
        return False
    tags = {
        key: str(value)
        for record, _ in journal.read(folder / run_folder.JOURNAL)
        if record.kind == "tags"
        for key, value in record.values.items()
    }
    log_lines = lines(config, journal.events(folder / run_folder.JOURNAL), tags)
    if log_lines:
        documents.write_text(folder / LOG, "".join(f"{line}\n" for line in log_lines))
    return bool(log_lines)


def lines(config: RunConfig, events: Sequence[Record], tags: Mapping[str, str]) -> list[str]:
    """The lines of the log; [] for a run without a benchmark or a target, and for a resumed run.

    `events` are the journal's, `tags` the fingerprint's. The wall clock is read once, at `run_start`. Every other time
    adds the monotonic clock's difference, so setting the clock changes no duration.
    """
    benchmark = benchmark_of(config)
    start = next((event for event in events if event.key == "run_start"), None)
    stop = next((event for event in events if event.key == "run_stop"), None)
    resumed = attempts.newest_resume(events) is not None
    if benchmark is None or start is None or stop is None or resumed or not config.targets():
        return []
    written = []
    for key, value, metadata, at in _entries(benchmark, config, events, tags):
        time_ms = start.time_ms + round((at.clock_sec - start.clock_sec) * 1000)
        content = {"namespace": "", "time_ms": time_ms, "event_type": TYPES.get(key, POINT), "key": key}
        written.append(TOKEN + json.dumps(content | {"value": value, "metadata": dict(metadata)}))
    return written


Entry = tuple[str, Any, Mapping[str, Any], Record]  # key, value, metadata, and the event that gives the time


def _entries(
    benchmark: Benchmark, config: RunConfig, events: Sequence[Record], tags: Mapping[str, str]
) -> Iterator[Entry]:
    start = next(event for event in events if event.key == "run_start")
    for key, value in _submission(benchmark, config, tags).items():
        yield key, value, {}, events[0]
    yield "cache_clear", False, {}, events[0]  # files may lie in the machine's memory from an earlier run
    hyperparameters = benchmark.hyperparameters(config, int(start.values["num_batches"]))
    for key, value in {"global_batch_size": config.samples_per_step(), "seed": config.seed, **hyperparameters}.items():
        if value is not None:
            yield key, value, benchmark.metadata.get(key, {}), start
    for event in until_target(events, config.targets()):
        if event.key in COUNTS:
            yield event.key, int(event.value or 0), {}, event
        elif event.key == "eval_accuracy":
            metrics = evaluations.finite(event.values["metrics"])
            if (accuracy := benchmark.accuracy(metrics)) is not None:
                yield event.key, accuracy, _epoch(event), event
        elif event.key in TYPES:
            status = {"status": event.values["status"]} if event.key == "run_stop" else {}
            yield event.key, None, _epoch(event) | status, event


def _submission(benchmark: Benchmark, config: RunConfig, tags: Mapping[str, str]) -> dict[str, Any]:
    """The submission's keys. The last four are not in MLPerf's rules; they say what was really trained."""
    gpu = tags.get("env.gpu", "none")
    cpu = f"{config.cpu_processes} processes on {tags.get('env.cpu') or 'a CPU'}"
    return {
        "submission_org": "timetrial",
        "submission_platform": cpu if gpu == "none" else f"{tags.get('env.gpu_count', config.num_gpus())}x{gpu}",
        "submission_division": "closed" if config.target_set else "open",
        "submission_status": "research",
        "submission_benchmark": benchmark.name,
        "dataset": config.dataset.name,
        "target_accuracy": config.targets(),
        "precision": config.precision.name,
        "stack": tags.get("env.stack_id", config.stack.name),
    }


def _epoch(event: Record) -> dict[str, Any]:
    return {key: event.values[key] for key in ("epoch_num", "samples_count") if key in event.values}


def until_target(events: Sequence[Record], targets: Mapping[str, Target]) -> list[Record]:
    """The events up to the evaluation that reaches the target, where MLPerf's clock stops.

    If a run trains on after it (`stop_at_target=false`), the ends of the run and of its epoch are moved to that
    evaluation.
    """
    kept: list[Record] = []
    reached = False
    for event in events:
        if reached and event.key in ("epoch_start", "throughput_window", "eval_start"):
            ends = [event for event in events if event.key == "run_stop"][:1]
            keys = [before.key for before in kept]
            if keys.count("epoch_start") > keys.count("epoch_stop"):
                ends.insert(0, next(event for event in events[len(kept) :] if event.key == "epoch_stop"))
            at = kept[-1]
            return kept + [replace(end, time_ms=at.time_ms, clock_sec=at.clock_sec) for end in ends]
        kept.append(event)
        reached = reached or (event.key == "eval_accuracy" and attempts.reached(event.values["metrics"], targets))
    return kept
