"""Converts a file of MLPerf's log into a journal's records, with our names for benchmark and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from conf.target import Target
from tracking.measure.programs import (
    EVALUATIONS,
    NO_STOP,
    RUN_EDGES,
    SUCCESS,
    Benchmark,
    Entry,
    LineSplitter,
    MetricJoiner,
    MLPerfLog,
    SkippedLines,
    TrainingEvents,
    WallClock,
    by_our_names,
    metric_of,
    read_log,
)
from tracking.record import Record, attempts, typed_json

INTERVALS = ("epoch_", "block_", "eval_", "train_epoch")  # prefixes of keys of training and evaluation
BEFORE, BEHIND, UNSURE = "before run_start", "after run_stop", "that reach the target, in a run without run_stop"


@dataclass(frozen=True)
class PublishedLog:
    """A converted log. `seed` is None if the log lacks it; `status` is run_stop's; `unread` are torn lines."""

    benchmark: Benchmark
    name: str
    targets: Mapping[str, Target]
    seed: int | None
    status: str
    account: TrainingEvents
    records: list[Record] = field(default_factory=list)
    unread: SkippedLines = field(default_factory=SkippedLines)


def read(content: bytes, target: Target | None = None) -> PublishedLog:
    """Read the log of one run. Raises ValueError that names what is missing."""
    lines = LineSplitter()
    log = read_log([*lines.feed(content), *lines.end()])
    if not log.entries:
        raise ValueError("holds no line of MLPerf's log (:::MLLOG, :::MLL or :::MLPv0.5.0)")
    name = log.submission.name.lower()
    if not name:
        raise ValueError("does not say its benchmark (submission_benchmark)")
    last_ms = max(entry.time_ms for entry in log.entries)
    if log.start is None or (log.stop is None and last_ms <= log.start.time_ms):
        raise ValueError("is not the log of a whole run: run_start is missing, or nothing follows it")
    benchmark = log.submission.benchmark
    renamed = _renamed(log.entries, benchmark)
    values = [entry.value for entry in renamed if entry.key in EVALUATIONS]
    targets = benchmark.targets_of(values, log.submission.target, target)
    account = TrainingEvents(WallClock(0.0, 0.0), targets, submission=log.submission)
    records = [record for entry in _in_order(log, log.start, renamed, targets) for record in account.read_entry(entry)]
    if log.stop is None:
        records += account.end(int(last_ms), last_ms / 1e3, NO_STOP)
    seeds = [entry.value for entry in log.entries if entry.key == "seed"]
    seed = seeds[-1] if seeds and type(seeds[-1]) is int and seeds[-1] >= 0 else None
    unread = SkippedLines()
    for line in log.torn:
        unread.add("a line of MLPerf's log cannot be read", line)
    return PublishedLog(benchmark, name, targets, seed, log.status, account, records, unread)


def _renamed(entries: Sequence[Entry], benchmark: Benchmark) -> list[Entry]:
    """The entries, with the metrics of each evaluation as a mapping by our names."""
    several = len({metric_of(entry) for entry in entries if entry.key in EVALUATIONS} - {""}) > 1
    return [by_our_names(entry, benchmark, several) if entry.key in EVALUATIONS else entry for entry in entries]


def _in_order(
    log: MLPerfLog, start: Entry, renamed: Sequence[Entry], targets: Mapping[str, Target]
) -> list[Entry]:  # fmt: skip
    """The entries in order of their times, without entries of training and evaluation before the run's start.

    Some benchmarks evaluate after the training. If the run succeeded and no earlier evaluation reaches the target, one
    evaluation after run_stop counts at run_stop: the first that reaches the target, else the last. Without run_stop,
    evaluations that reach the target do not count.
    """
    joiner = MetricJoiner(targets)
    entries: list[Entry] = []
    left: dict[str, list[Entry]] = {BEFORE: [], BEHIND: [], UNSURE: []}
    for entry in sorted(renamed, key=lambda entry: entry.time_ms):
        early = entry.time_ms < start.time_ms
        if entry.key not in EVALUATIONS:
            another = entry.key in RUN_EDGES and entry is not start
            entries += [] if another or (early and entry.key.startswith(INTERVALS)) else [entry]
        elif value := joiner.join(entry, entry.value):
            whole = replace(entry, value=value, metadata={**entry.metadata, "metric": None})
            unsure = log.stop is None and _reaches(whole, targets)
            late = log.stop is not None and entry.time_ms > log.stop.time_ms
            place = BEFORE if early else BEHIND if late else UNSURE if unsure else ""
            left.get(place, entries).append(whole)
    if log.stop is not None:
        stop = replace(log.stop, metadata={**log.stop.metadata, "status": log.status})
        end = [stop]
        if log.status == SUCCESS and left[BEHIND] and not any(_reaches(entry, targets) for entry in entries):
            reaching = (place for place, entry in enumerate(left[BEHIND]) if _reaches(entry, targets))
            counted = left[BEHIND].pop(next(reaching, -1))
            end.insert(0, replace(counted, time_ms=stop.time_ms))
        later = (place for place, entry in enumerate(entries) if entry.time_ms > stop.time_ms)
        first_later = next(later, len(entries))
        entries[first_later:first_later] = end
    for words, evaluations in left.items():
        if evaluations:
            log.submission.note(words, f"evaluations {words}: {len(evaluations)}")
    return entries


def _reaches(entry: Entry, targets: Mapping[str, Target]) -> bool:
    if entry.key not in EVALUATIONS:
        return False
    return attempts.reached(
        {key: float(value) for key, value in entry.value.items() if typed_json.is_number(value)}, targets
    )
