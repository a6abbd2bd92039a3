"""What a file of MLPerf's log says: of which benchmark it is, its target, its entries with our names for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from conf.target import AT_LEAST, AT_MOST, Target, is_at_most, limit, parse
from tracking.programs import Account, Entry, LeftOut, Lines, WallClock, benchmark_in, entry_in, foreign, is_torn
from tracking.run import Record

PERCENT_ABOVE = 1.0  # BLEU above it is said in percent, and so is its target then


@dataclass(frozen=True)
class KnownBenchmark:
    """Our names of model and dataset, and MLPerf's targets by our names of metrics.

    Where a benchmark has no epochs, the numbers that its logs give them are those of samples.
    """

    model: str
    dataset: str
    targets: Mapping[str, Target]
    has_epochs: bool = True


# By MLPerf's name. The targets are those that compliance_checker of mlperf-logging 4.1 asks for in v0.7, or in the
# first round that has the benchmark; of BERT that since v1.0, for v0.7 has .712 or .706; and v0.5's of NCF, which it
# does not check. A log of v0.5 says its own.
BENCHMARKS = {
    "resnet": KnownBenchmark("resnet50", "imagenet", {"accuracy": 0.759}),
    "ssd": KnownBenchmark("ssd", "coco", {"box_map": 0.23}),
    "maskrcnn": KnownBenchmark("maskrcnn", "coco", {"box_map": 0.377, "mask_map": 0.339}),
    "gnmt": KnownBenchmark("gnmt", "wmt", {"bleu": 0.24}),
    "transformer": KnownBenchmark("transformer", "wmt", {"bleu": 0.25}),
    "ncf": KnownBenchmark("ncf", "movielens", {"hit_rate_10": 0.635}),
    "minigo": KnownBenchmark("minigo", "go", {"accuracy": 0.5}),
    "bert": KnownBenchmark("bert", "wikipedia", {"accuracy": 0.72}, has_epochs=False),
    "dlrm": KnownBenchmark("dlrm", "criteo", {"auc": 0.8025}),
    "dlrm_dcnv2": KnownBenchmark("dlrm_dcnv2", "criteo_multihot", {"auc": 0.80275}),
    "rnnt": KnownBenchmark("rnnt", "librispeech", {"word_error_rate": "<=0.058"}),
    "unet3d": KnownBenchmark("unet3d", "kits19", {"dice": 0.908}),
}
# From v2.0 on ssd is another model, which Adam trains. NVIDIA says its batches where samples are asked for.
RETINANET = KnownBenchmark("retinanet", "openimages", {"box_map": 0.34})
EPOCHS = ("epoch_start", "epoch_stop", "block_start", "block_stop")
METRICS = {"BBOX": "box_map", "SEGM": "mask_map"}


@dataclass(frozen=True)
class PublishedLog:
    """`seed` is None where the log says none; `status` is that of its run_stop."""

    benchmark: KnownBenchmark
    name: str
    targets: Mapping[str, Target]
    seed: int | None
    account: Account
    records: list[Record] = field(default_factory=list)
    unread: LeftOut = field(default_factory=LeftOut)

    @property
    def status(self) -> str:
        return self.account.status


def read(content: bytes, target: Target | None = None) -> PublishedLog:
    """The log of one run. Raises ValueError that says what it lacks."""
    lines = Lines()
    texts = [*lines.feed(content), *lines.end()]
    entries = [entry for entry in map(entry_in, texts) if entry is not None]
    if not entries:
        raise ValueError("holds no line of MLPerf's log (:::MLLOG, :::MLL or :::MLPv0.5.0)")
    said = {entry.key: entry.value for entry in entries}
    name = (foreign.text(said.get("submission_benchmark")) or next(filter(None, map(benchmark_in, texts)), "")).lower()
    if not name:
        raise ValueError("does not say its benchmark (submission_benchmark)")
    starts, stops = (sum(entry.key == key for entry in entries) for key in ("run_start", "run_stop"))
    if not starts or not stops:
        raise ValueError("is the log of no whole run: run_start or run_stop is missing")
    known = BENCHMARKS.get(name, KnownBenchmark(name, "mlperf", {}))
    if name == "ssd" and said.get("opt_name") == "adam":
        known, entries = RETINANET, [entry for entry in entries if entry.key not in ("train_samples", "eval_samples")]
    if not known.has_epochs:
        entries = [replace(entry, metadata=_without_epoch(entry)) for entry in entries if entry.key not in EPOCHS]
    metric = next(iter(known.targets), "accuracy")
    named = [_named(entry, metric) for entry in entries]
    targets = _targets(known, named, target)
    account = Account(WallClock(0.0, 0.0), targets)
    records = [record for entry in named for record in account.entry(entry)]
    seed = said.get("seed")
    unread = LeftOut()
    for text in filter(is_torn, texts):
        unread.add("a line of MLPerf's log cannot be read", text)
    seed = seed if type(seed) is int and seed >= 0 else None
    return PublishedLog(known, name, targets, seed, account, records, unread)


def _without_epoch(entry: Entry) -> Mapping[str, Any]:
    return {key: value for key, value in entry.metadata.items() if key != "epoch_num"}


def _named(entry: Entry, metric: str) -> Entry:
    """With our names for the metrics of an evaluation."""
    if entry.key != "eval_accuracy":
        return entry
    values = entry.value if isinstance(entry.value, dict) else {metric: entry.value}
    return replace(entry, value={METRICS.get(key, key): value for key, value in values.items()})


def _targets(known: KnownBenchmark, entries: list[Entry], asked: Target | None) -> dict[str, Target]:
    """What was asked for, or the log's own, or MLPerf's. A number alone is a limit on the side that MLPerf's is."""
    metric, own = next(iter(known.targets.items()), ("accuracy", 0.0))
    side = AT_MOST if is_at_most(own) else AT_LEAST
    if asked is not None:
        return {metric: asked if is_at_most(asked) else parse(f"{side}{asked}")}
    said = next((entry.value for entry in entries if entry.key == "eval_target"), None)
    if isinstance(said, int | float) and not isinstance(said, bool) and len(known.targets) < 2:
        return {metric: parse(f"{side}{said}")}
    values = [entry.value for entry in entries if entry.key == "eval_accuracy"]
    in_percent = any(isinstance(row.get("bleu"), int | float) and row["bleu"] > PERCENT_ABOVE for row in values)
    return {name: 100 * limit(value) if in_percent else value for name, value in known.targets.items()}
