"""What a file of MLPerf's log says: of which benchmark it is, its target, its entries with our names for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tracking.programs import Account, Entry, Lines, WallClock, benchmark_in, entry_in
from tracking.run import Record

PERCENT_ABOVE = 1.0  # BLEU above it is said in percent, and so is its target then


@dataclass(frozen=True)
class KnownBenchmark:
    """Our names of model and dataset, and v0.7's targets by our names of metrics."""

    model: str
    dataset: str
    targets: Mapping[str, float]


# By MLPerf's name. The targets are those that compliance_checker of mlperf-logging asks for in v0.7, and v0.5's of NCF,
# which v0.7 has no more; a log of v0.5 says its own.
BENCHMARKS = {
    "resnet": KnownBenchmark("resnet50", "imagenet", {"accuracy": 0.759}),
    "ssd": KnownBenchmark("ssd", "coco", {"box_map": 0.23}),
    "maskrcnn": KnownBenchmark("maskrcnn", "coco", {"box_map": 0.377, "mask_map": 0.339}),
    "gnmt": KnownBenchmark("gnmt", "wmt", {"bleu": 0.24}),
    "transformer": KnownBenchmark("transformer", "wmt", {"bleu": 0.25}),
    "ncf": KnownBenchmark("ncf", "movielens", {"hit_rate_10": 0.635}),
}
# From v2.0 on ssd is another model, which Adam trains. NVIDIA says its batches where samples are asked for.
RETINANET = KnownBenchmark("retinanet", "openimages", {"box_map": 0.34})
METRICS = {"BBOX": "box_map", "SEGM": "mask_map"}


@dataclass(frozen=True)
class PublishedLog:
    """`seed` is None where the log says none; `status` is that of its run_stop."""

    benchmark: KnownBenchmark
    name: str
    targets: Mapping[str, float]
    seed: int | None
    account: Account
    records: list[Record] = field(default_factory=list)

    @property
    def status(self) -> str:
        return self.account.status


def read(content: bytes, target: float | None = None) -> PublishedLog:
    """The log of one run. Raises ValueError that says what it lacks."""
    lines = Lines()
    texts = [*lines.feed(content), *lines.end()]
    entries = [entry for entry in map(entry_in, texts) if entry is not None]
    if not entries:
        raise ValueError("holds no line of MLPerf's log (:::MLLOG, :::MLL or :::MLPv0.5.0)")
    said = {entry.key: entry.value for entry in entries}
    name = str(said.get("submission_benchmark") or next(filter(None, map(benchmark_in, texts)), "")).lower()
    if not name:
        raise ValueError("does not say its benchmark (submission_benchmark)")
    starts, stops = (sum(entry.key == key for entry in entries) for key in ("run_start", "run_stop"))
    if not starts or not stops:
        raise ValueError("is the log of no whole run: run_start or run_stop is missing")
    known = BENCHMARKS.get(name, KnownBenchmark(name, "mlperf", {}))
    if name == "ssd" and said.get("opt_name") == "adam":
        known, entries = RETINANET, [entry for entry in entries if entry.key not in ("train_samples", "eval_samples")]
    metric = next(iter(known.targets), "accuracy")
    named = [_named(entry, metric) for entry in entries]
    targets = _targets(known, named, target)
    account = Account(WallClock(0.0, 0.0), targets)
    records = [record for entry in named for record in account.entry(entry)]
    seed = said.get("seed")
    return PublishedLog(known, name, targets, seed if type(seed) is int and seed >= 0 else None, account, records)


def _named(entry: Entry, metric: str) -> Entry:
    """With our names for the metrics of an evaluation."""
    if entry.key != "eval_accuracy":
        return entry
    values = entry.value if isinstance(entry.value, dict) else {metric: entry.value}
    return replace(entry, value={METRICS.get(key, key): value for key, value in values.items()})


def _targets(known: KnownBenchmark, entries: list[Entry], asked: float | None) -> dict[str, float]:
    metric = next(iter(known.targets), "accuracy")
    if asked is not None:
        return {metric: asked}
    said = next((entry.value for entry in entries if entry.key == "eval_target"), None)
    if isinstance(said, int | float) and not isinstance(said, bool) and len(known.targets) < 2:
        return {metric: float(said)}
    values = [entry.value for entry in entries if entry.key == "eval_accuracy"]
    in_percent = any(isinstance(row.get("bleu"), int | float) and row["bleu"] > PERCENT_ABOVE for row in values)
    return {name: value * (100 if in_percent else 1) for name, value in known.targets.items()}
