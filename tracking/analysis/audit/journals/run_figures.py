"""A run's figures from its journal and config alone, to check a report; independent of the report's code."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from conf.metric import HIGHER, LOWER
from tracking.analysis.audit.journals import epoch_figures, limits
from tracking.analysis.audit.journals.journal_run import EVALUATED, JournalRun
from tracking.base import quantities

BEST = quantities.BEST
# Metrics that runs of older versions lack, though they follow from their events.
NEWER = (*limits.PREFIXES, quantities.EVALUATIONS, quantities.TIME_EVALUATION_INTERVAL_SEC)


class JournalFigures(JournalRun):
    """The figures of the run in `folder`, by the metrics' names."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._values: dict[str, float | None] = {}

    def value(self, key: str) -> float | None:
        """A metric, computed from the events if possible; None if the run lacks it, or its events cannot give it."""
        if key not in self._values:
            self._values[key] = self._computed(key)
        return self._values[key]

    def _computed(self, key: str) -> float | None:
        if key.startswith(BEST):
            return self.best(key.removeprefix(BEST))
        if key.startswith(epoch_figures.unknown_figures(self)) or (
            key.startswith(NEWER) and self.journaled(key) is None
        ):
            return None
        if key.startswith(limits.PREFIX):
            share = self.shares.get(key.removeprefix(limits.PREFIX).removesuffix("_fraction"))
            return limits.rounded(share, limits.SHARE_DIGITS, self.journaled(key))
        if key.startswith(limits.ROUNDED):
            return limits.rounded(self.busy.get(key), limits.DIGITS, self.journaled(key))
        if key.startswith(limits.PREFIXES):
            return self.busy.get(key)
        return COMPUTED[key](self) if key in COMPUTED else self.journaled(key)

    def journaled(self, key: str) -> float | None:
        """The newest journaled value of a metric; None if it is not finite."""
        value = self._newest(key)
        return value if value is not None and math.isfinite(value) else None

    def _newest(self, key: str) -> float | None:
        """The newest journaled value; the largest of several at one time, as in MLflow."""
        rows = [row for row in self.rows if row["kind"] == "metrics" and key in row["values"]]
        values = [(row.get("step") or 0, row["time_ms"], float(row["values"][key])) for row in rows]
        return max(values)[2] if values else None

    def lost(self, key: str) -> bool:
        """Whether a figure became NaN or infinite; a best value, whether its metric did."""
        last = quantities.EVAL + key.removeprefix(BEST) if key.startswith(BEST) else key
        return self.value(key) is None and not math.isfinite(self._newest(last) or 0.0)

    @cached_property
    def with_best(self) -> set[str]:
        """The names of metrics with a journaled best value."""
        keys = {key for row in self.rows if row["kind"] == "metrics" for key in row["values"]}
        return {key.removeprefix(BEST) for key in keys if key.startswith(BEST)}

    @cached_property
    def busy(self) -> dict[str, float]:
        """Its utilisation and its place under the roofline, by metric."""
        return limits.utilization(self.rows, self.folder) | limits.place(self.rows, self.folder)

    @cached_property
    def shares(self) -> dict[str, float]:
        """The share of its time by cause."""
        return limits.shares(self.rows, self.folder)

    def best(self, metric: str) -> float | None:
        """The best value of all evaluations: the smallest or the largest, by the metric's direction.

        Without a known direction, as in older runs, it is the journaled best if that is either of them; else None.
        """
        evaluated = [
            row["values"]["metrics"] for row in self.rows if row["kind"] == "event" and row["key"] == EVALUATED
        ]
        values = sorted(row[metric] for row in evaluated if math.isfinite(row.get(metric, math.nan)))
        ends = {LOWER: values[0], HIGHER: values[-1]} if values else {}
        journaled = self.journaled(BEST + metric)
        return ends.get(self.directions.get(metric, ""), journaled if journaled in ends.values() else None)

    def flops_utilization(self) -> float | None:
        """The run's value, scaled by the recomputed rate over the run's rate: the journal lacks the counted FLOPs."""
        journaled = self.merged("metrics")
        claimed, rate = journaled.get(quantities.THROUGHPUT_MODEL_FLOPS_UTILIZATION), self.samples_per_sec()
        if claimed is None or rate is None:
            return None
        return float(claimed * rate / journaled[quantities.THROUGHPUT_SAMPLES_PER_SEC])

    def at_least(self, key: str) -> float | None:
        """The lower bound of a figure to accuracy for a run without its target; None if it is not known.

        A failed run has only the bounds of figures that it journaled.
        """
        journaled = {name for row in self.rows if row["kind"] == "metrics" for name in row["values"]}
        if key == quantities.TIME_TO_ACCURACY_SEC:
            if quantities.TIME_CENSORED_SEC in journaled:
                return self.timed_sec() if self.ended else self.sec_to_last_event()
            return epoch_figures.trained_sec(self) + self._spans("eval", "checkpoint") if self.ended else None
        if key == quantities.TIME_TO_ACCURACY_TRAIN_SEC:
            return epoch_figures.trained_sec(self) if self.ended or quantities.TIME_TRAIN_SEC in journaled else None
        if key == quantities.EPOCHS_TO_ACCURACY:
            numbers = [row["values"].get("epoch_num") for row in self.rows if row.get("key") == EVALUATED]
            return float(numbers[-1]) if numbers and numbers[-1] is not None else None
        if key == quantities.EVALUATIONS_TO_ACCURACY:
            return (self.last_evaluation() or (0.0, 0.0))[0] if quantities.EVALUATIONS_CENSORED in journaled else None
        if key == quantities.ENERGY_TO_ACCURACY_JOULES:
            return self.journaled(quantities.ENERGY_JOULES)
        if key == quantities.ENERGY_TO_ACCURACY_KWH:
            return self.journaled(quantities.ENERGY_KWH)
        if key == quantities.ENERGY_TO_ACCURACY_CO2_GRAMS:
            return self.journaled(quantities.ENERGY_CO2_GRAMS)
        if key == quantities.COST_TO_ACCURACY_USD and quantities.COST_USD in journaled:
            return self.usd(self.timed_sec() if self.ended else self.sec_to_last_event())
        return None

    def sec_to_last_event(self) -> float | None:
        starts, events = self.times("run_start"), [row for row in self.rows if row["kind"] == "event"]
        return float(events[-1]["clock_sec"]) - starts[0] if starts else None

    def _spans(self, *names: str) -> float:
        """The seconds between the start and stop events of these names."""
        return math.fsum(
            stop - start
            for name in names
            for start, stop in zip(self.times(f"{name}_start"), self.times(f"{name}_stop"), strict=False)
        )

    def epochs(self) -> float | None:
        number = None if self.hit_row is None else self.rows[self.hit_row]["values"].get("epoch_num")
        return None if number is None else float(number)

    def last_evaluation(self) -> tuple[float, float] | None:
        """The number of the last evaluation that reached the target or could have, and the interval before it (s)."""
        known, number, before, interval, last = set(self.targets), 0, None, 0.0, None
        for row in self.rows[: None if self.hit_row is None else self.hit_row + 1]:
            if row["kind"] == "event" and row["key"] == "run_start" and before is None:
                before = row["clock_sec"]
            evaluated = row["kind"] == "event" and row["key"] == EVALUATED and before is not None
            again = "epoch_num" in row["values"] and row["values"] == last
            if evaluated and not again and known and not known.difference(row["values"]["metrics"]):
                last = row["values"]
                counted = int(row["values"].get("eval_num", number + 1))
                interval = (row["clock_sec"] - before) / max(1, counted - number)
                number, before = counted, row["clock_sec"]
        return (float(number), interval) if number else None

    def evaluations(self) -> float | None:
        last = None if self.hit_row is None else self.last_evaluation()
        return last[0] if last else None

    def evaluation_interval_sec(self) -> float | None:
        last = self.last_evaluation()
        return last[1] if last else None

    def to_accuracy_sec(self) -> float | None:
        return (
            None if self.hit_row is None else float(self.rows[self.hit_row]["clock_sec"] - self.times("run_start")[0])
        )

    def to_accuracy_train_sec(self) -> float | None:
        """The seconds of training without evaluations and checkpoints, added up from event to event.

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
        return self.per_sec("samples")

    def per_sec(self, *counts: str) -> float | None:
        """Counts over seconds of the windows after the first two; after the first, if there are only two.

        An epoch, or its part between two evaluations, takes as long as the rank with the largest sum of windows.
        """
        windows = [row["values"] for row in self.rows if row["kind"] == "event" and row["key"] == "throughput_window"]
        steady = windows[2:] if len(windows) > 2 else windows[1:]
        milliseconds = 0.0
        stretches: dict[tuple[int, int], list[list[float]]] = {}
        for window in steady:
            stretches.setdefault((window["epoch_num"], window.get("section", 0)), []).append(window["rank_ms"])
        for rank_times in stretches.values():
            milliseconds += max(math.fsum(rank) for rank in zip(*rank_times, strict=True))
        if not milliseconds or any(count not in window for window in steady for count in counts):
            return None
        rate: float = 1e3 * sum(window[count] for window in steady for count in counts) / milliseconds
        return rate

    def samples_per_sec_per_device(self) -> float | None:
        rate, devices = self.samples_per_sec(), self.devices()
        return rate / devices if rate is not None and devices else None

    def timed_sec(self) -> float | None:
        starts, stops = self.times("run_start"), self.times("run_stop")
        return stops[0] - starts[0] if starts and stops else None

    def usd(self, seconds: float | None) -> float | None:
        """The cost of `seconds` on all its nodes; None without a price."""
        price = (self.config.get("instance") or {}).get("price_per_hour")
        return None if price is None or seconds is None else seconds / 3600 * price * self.config.get("nodes", 1)

    def devices(self) -> float | None:
        """The number of processes that trained."""
        sizes = [row["values"][quantities.WORLD_SIZE] for row in self.rows if quantities.WORLD_SIZE in row["values"]]
        return float(sizes[-1]) if sizes else None


COMPUTED: dict[str, Callable[[JournalFigures], float | None]] = {
    quantities.TIME_EPOCH_SEC: epoch_figures.epoch_sec,
    quantities.EPOCHS_TO_ACCURACY: JournalFigures.epochs,
    quantities.EPOCHS_TRAINED: epoch_figures.trained,
    quantities.EVALUATIONS_TO_ACCURACY: JournalFigures.evaluations,
    quantities.TIME_EVALUATION_INTERVAL_SEC: JournalFigures.evaluation_interval_sec,
    quantities.TIME_TO_ACCURACY_SEC: JournalFigures.to_accuracy_sec,
    quantities.TIME_TO_ACCURACY_TRAIN_SEC: JournalFigures.to_accuracy_train_sec,
    quantities.THROUGHPUT_SAMPLES_PER_SEC: JournalFigures.samples_per_sec,
    quantities.THROUGHPUT_SAMPLES_PER_SEC_PER_DEVICE: JournalFigures.samples_per_sec_per_device,
    quantities.THROUGHPUT_TOKENS_PER_SEC: lambda run: (
        run.per_sec("tokens") or run.per_sec("source_tokens", "target_tokens")
    ),
    quantities.THROUGHPUT_SOURCE_TOKENS_PER_SEC: lambda run: run.per_sec("source_tokens"),
    quantities.THROUGHPUT_TARGET_TOKENS_PER_SEC: lambda run: run.per_sec("target_tokens"),
    quantities.THROUGHPUT_MODEL_FLOPS_UTILIZATION: JournalFigures.flops_utilization,
    quantities.COST_TO_ACCURACY_USD: lambda run: run.usd(run.to_accuracy_sec()),
    quantities.COST_USD: lambda run: run.usd(run.timed_sec()),
}
