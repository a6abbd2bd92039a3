"""A run's figures worked out from its journal and its config alone, to check a report by; shares nothing with it.

Of result.json it takes how the run ended, which no journal can say of one that was killed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from tracking.audit import limits
from tracking.audit.samples import falls, meets

EVALUATED = "eval_accuracy"
BEST = "eval/best_"


class JournalFigures:
    """The figures of the run in `folder`. Raises OSError where it has no journal.

    Its config is read when a figure needs it, and then raises OSError where there is none.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lines = (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()
        self.rows = [row for row in map(_parsed, lines) if row]
        self._values: dict[str, float | None] = {}
        self._labels: dict[str, str] = {}

    def _merged(self, kind: str) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for row in self.rows:
            if row["kind"] == kind:
                merged.update(row["values"])
        return merged

    @cached_property
    def params(self) -> dict[str, Any]:
        return self._merged("params")

    @cached_property
    def tags(self) -> dict[str, Any]:
        return self._merged("tags")

    @cached_property
    def config(self) -> dict[str, Any]:
        loaded: dict[str, Any] = yaml.safe_load((self.folder / "config.yaml").read_text(encoding="utf-8"))
        return loaded

    def times(self, key: str) -> list[float]:
        return [row["clock_sec"] for row in self.rows if row["kind"] == "event" and row["key"] == key]

    @cached_property
    def targets(self) -> dict[str, str]:
        """By metric, "0.9" for at least that and "<=3.28" for at most."""
        names, values = (str(self.params.get(f"target_{what}", "")) for what in ("metric", "value"))
        return {name: value for name, value in zip(names.split(","), values.split(","), strict=True) if name}

    @cached_property
    def hit_row(self) -> int | None:
        """The place of the row of the evaluation that reached every target."""
        for place, row in enumerate(self.rows):
            if row["kind"] != "event" or row["key"] != EVALUATED or not self.targets:
                continue
            if all(meets(row["values"]["metrics"].get(name), target) for name, target in self.targets.items()):
                return place
        return None

    @cached_property
    def result(self) -> dict[str, Any]:
        """How it ended; empty where it has not."""
        path = self.folder / "result.json"
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return content

    @cached_property
    def failure(self) -> str | None:
        """The kind of its failure."""
        kind: str | None = (self.result.get("failure") or {}).get("kind")
        return kind

    @cached_property
    def diverged(self) -> bool:
        return self.failure == "nan" and bool(self.targets)

    @cached_property
    def uncounted(self) -> bool:
        """Whether it says of itself that no mean counts it, as one that only fills caches does."""
        return "timetrial.uncounted" in self.tags

    @cached_property
    def stopped_short(self) -> bool:
        """Whether it came to no target before it was over or its time was up; or diverged, and never will."""
        if self.uncounted:
            return False
        if not self.targets or "resumed" in self.tags:
            return self.diverged
        return self.failure in ("nan", "timeout") or (self.ended and self.hit_row is None)

    @cached_property
    def ended(self) -> bool:
        """Whether it ended by itself and in one go. It can fail behind its last evaluation: result.json says so."""
        return self.result.get("status") == "finished" and bool(self.times("run_stop")) and "resumed" not in self.tags

    def counts(self, with_missed: bool = False) -> bool:
        """Whether it ended at its target if it has one, or anywhere `with_missed`."""
        return self.ended and not self.uncounted and (with_missed or self.hit_row is not None or not self.targets)

    def belongs(self, setting: Mapping[str, str]) -> bool:
        return all(self.label(axis) == value for axis, value in setting.items())

    def label(self, axis: str) -> str:
        """Its value of an axis of the report."""
        if axis not in self._labels:
            self._labels[axis] = self._label(axis)
        return self._labels[axis]

    def _label(self, axis: str) -> str:
        short = {"topology": "env.topology", "hardware": "env.gpu", "driver": "env.driver", "cuda": "env.cuda"}
        for name in (axis, short.get(axis, axis), "/".join(axis.replace("model.", "", 1).split("."))):
            for source in (self.params, self.tags):
                if source.get(name) not in (None, ""):
                    return str(source[name])
        node: Any = self.config
        for part in axis.split("."):
            node = node.get(part, "(none)") if isinstance(node, dict) else "(none)"
        return str(node)

    def value(self, key: str) -> float | None:
        """A metric as it follows from the events; None where the run has not got it, or where it cannot be told."""
        if key not in self._values:
            self._values[key] = self._computed(key)
        return self._values[key]

    def _computed(self, key: str) -> float | None:
        if key.startswith(BEST):
            return self.best(key.removeprefix(BEST))
        if key.startswith(limits.PREFIX):
            return self.shares.get(key.removeprefix(limits.PREFIX).removesuffix("_fraction"))
        return COMPUTED[key](self) if key in COMPUTED else None

    @cached_property
    def shares(self) -> dict[str, float]:
        """Of its time, by what limited it."""
        return limits.shares(self.rows, self.folder)

    def best(self, metric: str) -> float | None:
        """The largest value that an evaluation found, or of a loss the smallest."""
        evaluated = [
            row["values"]["metrics"] for row in self.rows if row["kind"] == "event" and row["key"] == EVALUATED
        ]
        values = sorted(row[metric] for row in evaluated if math.isfinite(row.get(metric, math.nan)))
        lower = self.targets[metric].startswith("<=") if metric in self.targets else falls(metric)
        return (values[0] if lower else values[-1]) if values else None

    def epochs_trained(self) -> float | None:
        """Of an epoch that ended early the part that was trained; None where that is not known."""
        ends = [row for row in self.rows if row["kind"] == "event" and row["key"] == "epoch_stop"]
        parts = [row["values"].get("part", 1) for row in ends]
        whole = min(len(self.times("epoch_start")), len(parts))
        return None if None in parts else float(whole - len(parts) + sum(parts)) or None

    def flops_utilization(self) -> float | None:
        """What the run says, corrected by how far its rate is from its windows': FLOPs are counted, not journaled."""
        said = self._merged("metrics")
        claimed, rate = said.get("throughput/model_flops_utilization"), self.samples_per_sec()
        if claimed is None or rate is None:
            return None
        return float(claimed * rate / said["throughput/samples_per_sec"])

    def at_least(self, key: str) -> float | None:
        """What a figure to accuracy is at least, of a run that stopped short; None where that is not known.

        As the run said it: of one that failed, only where a row of its journal has it.
        """
        said = {name for row in self.rows if row["kind"] == "metrics" for name in row["values"]}
        if key == "time/to_accuracy_sec":
            if "time/censored_sec" in said:
                return self.timed_sec() if self.ended else self.sec_to_last_event()
            return self._spans("epoch", "eval", "checkpoint") if self.ended else None
        if key == "time/to_accuracy_train_sec":
            return self._spans("epoch") if self.ended else None
        if key == "epochs/to_accuracy":
            epochs = [row["values"].get("epoch_num") for row in self.rows if row.get("key") == EVALUATED]
            return float(epochs[-1]) if epochs and epochs[-1] is not None else None
        if key == "cost/to_accuracy_usd" and "cost/usd" in said:
            return self.usd(self.timed_sec() if self.ended else self.sec_to_last_event())
        return None

    def sec_to_last_event(self) -> float | None:
        starts, events = self.times("run_start"), [row for row in self.rows if row["kind"] == "event"]
        return float(events[-1]["clock_sec"]) - starts[0] if starts else None

    def _spans(self, *names: str) -> float:
        """The seconds between the starts and the ends of these."""
        return math.fsum(
            stop - start
            for name in names
            for start, stop in zip(self.times(f"{name}_start"), self.times(f"{name}_stop"), strict=False)
        )

    def epoch_sec(self) -> float | None:
        """Without the evaluations that lie within an epoch."""
        pairs = {
            name: list(zip(self.times(f"{name}_start"), self.times(f"{name}_stop"), strict=False))
            for name in ("epoch", "eval")
        }
        inner = [end - start for start, end in pairs["eval"] if any(a <= start and end <= b for a, b in pairs["epoch"])]
        total = math.fsum(stop - start for start, stop in pairs["epoch"]) - math.fsum(inner)
        trained = self.epochs_trained()
        return total / trained if trained else None

    def epochs(self) -> float | None:
        number = None if self.hit_row is None else self.rows[self.hit_row]["values"].get("epoch_num")
        return None if number is None else float(number)

    def to_accuracy_sec(self) -> float | None:
        return (
            None if self.hit_row is None else float(self.rows[self.hit_row]["clock_sec"] - self.times("run_start")[0])
        )

    def to_accuracy_train_sec(self) -> float | None:
        """The clock runs but where an evaluation or a checkpoint does: added up from event to event.

        None for a program that did not say when it evaluated.
        """
        if self.hit_row is None or ("program" in self.params and not self.times("eval_start")):
            return None
        running, total, last = False, 0.0, 0.0
        for row in self.rows[: self.hit_row + 1]:
            if row["kind"] != "event":
                continue
            total += row["clock_sec"] - last if running else 0.0
            last = row["clock_sec"]
            if row["key"] in ("run_start", "eval_stop", "checkpoint_stop"):
                running = True
            elif row["key"] in ("eval_start", "checkpoint_start"):
                running = False
        return total

    def samples_per_sec(self) -> float | None:
        """Samples over seconds of all windows but the first two, or where there are no more but the first.

        An epoch took as long as the rank whose windows of it sum up to most.
        """
        windows = [row["values"] for row in self.rows if row["kind"] == "event" and row["key"] == "throughput_window"]
        steady = windows[2:] if len(windows) > 2 else windows[1:]
        milliseconds = 0.0
        for epoch in {window["epoch_num"] for window in steady}:
            own = [window["rank_ms"] for window in steady if window["epoch_num"] == epoch]
            milliseconds += max(math.fsum(window[rank] for window in own) for rank in range(len(own[0])))
        return 1e3 * sum(window["samples"] for window in steady) / milliseconds if milliseconds else None

    def samples_per_sec_per_device(self) -> float | None:
        rate, devices = self.samples_per_sec(), self.devices()
        return rate / devices if rate is not None and devices else None

    def timed_sec(self) -> float | None:
        starts, stops = self.times("run_start"), self.times("run_stop")
        return stops[0] - starts[0] if starts and stops else None

    def usd(self, seconds: float | None) -> float | None:
        """What so many seconds of all its nodes cost; None without a price."""
        price = (self.config.get("instance") or {}).get("price_per_hour")
        return None if price is None or seconds is None else seconds / 3600 * price * self.config.get("nodes", 1)

    def devices(self) -> float | None:
        """The number of processes that it measured."""
        sizes = [row["values"]["world_size"] for row in self.rows if "world_size" in row["values"]]
        return float(sizes[-1]) if sizes else None


COMPUTED: dict[str, Callable[[JournalFigures], float | None]] = {
    "time/epoch_sec": JournalFigures.epoch_sec,
    "epochs/to_accuracy": JournalFigures.epochs,
    "epochs/trained": JournalFigures.epochs_trained,
    "time/to_accuracy_sec": JournalFigures.to_accuracy_sec,
    "time/to_accuracy_train_sec": JournalFigures.to_accuracy_train_sec,
    "throughput/samples_per_sec": JournalFigures.samples_per_sec,
    "throughput/samples_per_sec_per_device": JournalFigures.samples_per_sec_per_device,
    "throughput/model_flops_utilization": JournalFigures.flops_utilization,
    "cost/to_accuracy_usd": lambda run: run.usd(run.to_accuracy_sec()),
    "cost/usd": lambda run: run.usd(run.timed_sec()),
}


def _parsed(line: str) -> dict[str, Any] | None:
    """A row of a journal; None for a line that was cut off."""
    try:
        row: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return {**row, "values": row.get("values") or {}}
