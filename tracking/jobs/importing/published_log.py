"""Converts a file of MLPerf's log into a journal's records, with our names for benchmark and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from conf.target import Target
from tracking.measure.programs import (
    EVALUATIONS,
    MARKS,
    NO_STOP,
    SUCCESS,
    Benchmark,
    Entry,
    Joined,
    LeftOut,
    Lines,
    MLPerfLog,
    TrainingEvents,
    WallClock,
    by_our_names,
    metric_of,
    read_log,
)
from tracking.record import Record, attempts, typed_json

INTERVALS = ("epoch_", "block_", "eval_", "train_epoch")  # begin the keys of what belongs to the run
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
    unread: LeftOut = field(default_factory=LeftOut)


def read(content: bytes, target: Target | None = None) -> PublishedLog:
    """Read the log of one run. Raises ValueError that names what is missing."""
    lines = Lines()
    log = read_log([*lines.feed(content), *lines.end()])
    if not log.entries:
        raise ValueError("holds no line of MLPerf's log (:::MLLOG, :::MLL or :::MLPv0.5.0)")
    name = log.submission.name.lower()
    if not name:
        raise ValueError("does not say its benchmark (submission_benchmark)")
    last_ms = max(entry.time_ms for entry in log.entries)
    if log.start is None or (log.stop is None and last_ms <= log.start.time_ms):
        raise ValueError("is the log of no whole run: run_start is missing, or nothing is said behind it")
    benchmark = log.submission.benchmark
    named = _named(log.entries, benchmark)
    values = [entry.value for entry in named if entry.key in EVALUATIONS]
    targets = benchmark.targets_of(values, log.submission.target, target)
    account = TrainingEvents(WallClock(0.0, 0.0), targets, submission=log.submission)
    records = [record for entry in _told(log, log.start, named, targets) for record in account.entry(entry)]
    if log.stop is None:
        records += account.end(int(last_ms), last_ms / 1e3, NO_STOP)
    seeds = [entry.value for entry in log.entries if entry.key == "seed"]
    seed = seeds[-1] if seeds and type(seeds[-1]) is int and seeds[-1] >= 0 else None
    unread = LeftOut()
    for line in log.torn:
        unread.add("a line of MLPerf's log cannot be read", line)
    return PublishedLog(benchmark, name, targets, seed, log.status, account, records, unread)


def _named(entries: Sequence[Entry], benchmark: Benchmark) -> list[Entry]:
    """The entries, with the metrics of each evaluation as a mapping by our names."""
    several = len({metric_of(entry) for entry in entries if entry.key in EVALUATIONS} - {""}) > 1
    return [by_our_names(entry, benchmark, several) if entry.key in EVALUATIONS else entry for entry in entries]


def _told(log: MLPerfLog, start: Entry, named: Sequence[Entry], targets: Mapping[str, Target]) -> list[Entry]:
    """The entries in order of their times, without what training and evaluations say before the run's start.

    Some benchmarks are evaluated when the training is over. If the run succeeded, the first evaluation that then
    reaches the target, else the last one, counts at its run_stop. Without run_stop none counts that reaches it.
    """
    joined = Joined(targets)
    told: list[Entry] = []
    left: dict[str, list[Entry]] = {BEFORE: [], BEHIND: [], UNSURE: []}
    for entry in sorted(named, key=lambda entry: entry.time_ms):
        early = entry.time_ms < start.time_ms
        if entry.key not in EVALUATIONS:
            another = entry.key in MARKS and entry is not start
            told += [] if another or (early and entry.key.startswith(INTERVALS)) else [entry]
        elif value := joined.whole(entry, entry.value):
            whole = replace(entry, value=value, metadata={**entry.metadata, "metric": None})
            unsure = log.stop is None and _reaches(whole, targets)
            late = log.stop is not None and entry.time_ms > log.stop.time_ms
            place = BEFORE if early else BEHIND if late else UNSURE if unsure else ""
            left.get(place, told).append(whole)
    if log.stop is not None:
        stop = replace(log.stop, metadata={**log.stop.metadata, "status": log.status})
        end = [stop]
        if log.status == SUCCESS and left[BEHIND] and not any(_reaches(entry, targets) for entry in told):
            reaching = (at for at, entry in enumerate(left[BEHIND]) if _reaches(entry, targets))
            counted = left[BEHIND].pop(next(reaching, -1))
            end.insert(0, replace(counted, time_ms=stop.time_ms))
        place_of_end = next((at for at, entry in enumerate(told) if entry.time_ms > stop.time_ms), len(told))
        told[place_of_end:place_of_end] = end
    for words, entries in left.items():
        if entries:
            log.submission.note(words, f"evaluations {words}: {len(entries)}")
    return told


def _reaches(entry: Entry, targets: Mapping[str, Target]) -> bool:
    if entry.key not in EVALUATIONS:
        return False
    return attempts.reached(
        {key: float(said) for key, said in entry.value.items() if typed_json.is_number(said)}, targets
    )
