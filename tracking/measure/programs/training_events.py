"""Turn a program's lines, one by one, into the events of our journal.

A record has the program's own time if the line gives one, else the time at which the line was read. `thinning` keeps
the journal short however many lines there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from conf.metric import NO_DIRECTIONS
from conf.target import Target
from tracking.base import quantities
from tracking.measure.programs import checked_values
from tracking.measure.programs.checked_values import WallClock
from tracking.measure.programs.declared_patterns import PatternMatch
from tracking.measure.programs.epochs import Epochs, as_number, as_whole
from tracking.measure.programs.mlperf_lines import Entry, MetricJoiner, evaluated_model, metric_of
from tracking.measure.programs.mlperf_log import EVALUATIONS
from tracking.measure.programs.rates import EvaluationInterval, SampleCounts, StepCounts
from tracking.measure.programs.submission import Submission
from tracking.measure.programs.thinning import Thinning
from tracking.record import Record

EDGES = {"epoch_start": "epoch", "epoch_stop": "epoch", "eval_start": "eval", "eval_stop": "eval"}


class TrainingEvents:
    """The events of one program. Its `read_*` methods return the records of a line, `end` those of the exit.

    `submission` holds the facts of MLPerf's log so far. `missing_metrics` are the targets' metrics without a value yet.
    A single accuracy without a name is the first target's metric. If the program gives values before any start, its
    clock starts at `default_start` (wall clock in ms, monotonic seconds).
    """

    def __init__(
        self, clock: WallClock, targets: Mapping[str, Target] | None = None,
        default_start: tuple[int, float] | None = None, submission: Submission | None = None,
        directions: Mapping[str, str] = NO_DIRECTIONS, tokens_per_sample: float = 0.0,
    ) -> None:  # fmt: skip
        self.clock = clock
        self.targets = dict(targets or {})
        self._requested = bool(targets)  # if not, the targets are those of the benchmark in MLPerf's log
        self.missing_metrics = set(self.targets)
        self._default_start = default_start
        self.started = self.stopped = False
        self.program_gave_start = False
        self.status = ""  # the status of MLPerf's run_stop: success or aborted
        self.submission = submission or Submission()
        self._window_ranks = 0  # the number of ranks in each throughput_window
        self._open_intervals: set[str] = set()
        self._epochs = Epochs(self.submission)
        self._joiner = MetricJoiner(self.targets)
        self._last_evaluation: tuple[Any, dict[str, float]] | None = None
        self._samples, self._interval = SampleCounts(tokens_per_sample), EvaluationInterval()
        self._thinning = Thinning(self.targets, directions)
        self._epoch: float | None = None  # a fraction if evaluations come within an epoch
        self._steps = StepCounts()
        self._num_values: dict[str, int] = {}  # the number of values of each metric

    @property
    def num_skipped(self) -> int:
        """The number of lines that were read, but not journaled, to keep the journal short."""
        return self._thinning.num_skipped

    @property
    def params(self) -> dict[str, int]:
        return self.submission.params | self._interval.params(self.submission.epoch_samples())

    @property
    def world_size(self) -> int | None:
        return self.submission.world_size

    def read_entry(self, entry: Entry) -> list[Record]:
        """The records of a line of MLPerf's log."""
        self.submission.read(entry)
        if entry.key == "train_epoch":
            self._epochs.start_epoch(entry.metadata.get("epoch_num"))
        elif entry.key in EVALUATIONS:
            return self._read_evaluation(self._by_benchmark(entry))
        elif entry.key in ("init_stop", "run_start", "run_stop", "block_start", "block_stop") or entry.key in EDGES:
            return self._interval_edge(entry)
        return []

    def read_matches(self, matches: Iterable[PatternMatch], time_ms: int, clock_sec: float) -> list[Record]:
        """The records of a line's matches, with the time at which it was read. A line holds at most one evaluation."""
        records: list[Record] = []
        metrics: dict[str, float] = {}
        matches = list(matches)
        if any(match.key.startswith(quantities.EVAL) for match in matches):
            self._samples.pause()  # a count in the same line comes after the evaluation
        for match in matches:
            if match.role == "metric" and match.key.startswith(quantities.EVAL):
                metrics[match.key.removeprefix(quantities.EVAL)] = match.value
            else:
                records += self._read_match(match, time_ms, clock_sec)
        if not metrics:
            return records
        self._samples.pause()
        progress = {"epoch_num": self._epoch, "samples_count": self._samples.latest}
        epoch = {key: number for key, number in progress.items() if number is not None}
        step = self._curve_step(quantities.EVAL + next(iter(metrics)))
        return records + self._start_by_default() + self._evaluation_records(metrics, epoch, time_ms, clock_sec, step)

    def _read_match(self, match: PatternMatch, time_ms: int, clock_sec: float) -> list[Record]:
        """The records of a match that is not of an evaluation."""
        if match.role == "start":
            return self._start(time_ms, clock_sec, by_program=True)
        if match.role == "epoch":
            self._epoch = int(match.value) if match.value.is_integer() else match.value
            return []
        if match.role == "step":
            self._steps.count(int(match.value))
            return []
        records = self._start_by_default()
        if match.role == "samples":
            return records + self._samples.count(int(match.value), time_ms, clock_sec, int(self._epoch or 0))
        values = {match.key: match.value}
        curve = Record("metrics", time_ms, clock_sec, step=self._curve_step(match.key), values=values)
        return records + self._thinning.admit([curve])

    def _curve_step(self, key: str) -> int:
        """The step of a metric's value on its curve: the step, else samples, else epoch, else the value's number."""
        count = self._num_values[key] = self._num_values.get(key, 0) + 1
        steps = (self._steps.latest, self._samples.latest, self._epoch)
        return max(0, int(next((number for number in steps if number is not None), count)))

    def read_record(self, record: Record) -> list[Record]:
        """The records of a line of `$TIMETRIAL_JOURNAL` that `journal_lines` has read. Raises ValueError."""
        record = self._steps.with_global_step(record)
        if record.kind == "metrics":
            return self._start_by_default() + self._thinning.admit([record])
        if record.key == "run_start":
            return self._start(record.time_ms, record.clock_sec, by_program=True)
        if record.key in ("init_stop", "warmup_start", "warmup_stop"):
            return self._thinning.admit([record])
        if record.key == "throughput_window":
            self._check_ranks(len(record.values["rank_ms"]))
        records = self._start_by_default()
        if record.key == "run_stop":
            return records + self._stop(record.time_ms, record.clock_sec, "success")
        if record.key == "eval_accuracy":
            epoch = {key: value for key, value in record.values.items() if key in ("epoch_num", "samples_count")}
            step = int(record.values.get("step", record.values.get("epoch_num", 0)))
            metrics = record.values["metrics"]
            return records + self._evaluation_records(metrics, epoch, record.time_ms, record.clock_sec, step)
        if record.key in EDGES and not self._is_first_edge(record.key):
            return records
        return records + self._thinning.admit([record])

    def _check_ranks(self, number: int) -> None:
        """Raise ValueError unless every window has the same number of ranks, so that a rank's windows can be added."""
        self._window_ranks = self._window_ranks or number
        if number != self._window_ranks:
            raise ValueError(f"rank_ms: has {number} ranks, but {self._window_ranks} before")

    def end(self, time_ms: int, clock_sec: float, status: str = "success") -> list[Record]:
        """The records of the program's exit: the end of the training, if it started and gave no end."""
        return self._stop(time_ms, clock_sec, status) if self.started else []

    def _interval_edge(self, entry: Entry) -> list[Record]:
        time_ms, clock_sec = int(entry.time_ms), self.clock.clock_sec(entry.time_ms)
        if entry.key == "run_start":
            return self._start(time_ms, clock_sec, by_program=True)
        if entry.key == "init_stop":
            return [] if self.started else [Record("event", time_ms, clock_sec, key="init_stop")]
        records = self._start_by_default()
        if entry.key == "run_stop":
            self.status = checked_values.text(entry.metadata.get("status")) or "success"
            return records + self._stop(time_ms, clock_sec, self.status)
        if self.stopped:
            return []
        if entry.key.startswith("block_"):
            return records + self._thinning.admit(self._epochs.read_block(entry, time_ms, clock_sec))
        if not self._is_first_edge(entry.key):
            return records
        edge_records = self._epochs.read_edge(entry, time_ms, clock_sec)
        self._epoch = edge_records[-1].values.get("epoch_num", self._epoch) if edge_records else self._epoch
        return records + self._thinning.admit(edge_records)

    def _is_first_edge(self, key: str) -> bool:
        """Whether an edge opens or closes its interval; further ranks repeat edges."""
        name, _, edge = key.partition("_")
        if (edge == "start") == (name in self._open_intervals):
            return False
        (self._open_intervals.add if edge == "start" else self._open_intervals.discard)(name)
        return True

    def _read_evaluation(self, entry: Entry) -> list[Record]:
        if self.stopped:
            self.submission.note("behind", "evaluations after run_stop")
            return []
        value, name = entry.value, metric_of(entry) or next(iter(self.targets), "accuracy")
        metrics = {str(key): number for key, number in value.items()} if isinstance(value, dict) else {name: value}
        number = self._epochs.completed_epochs(entry)
        valid_metrics = self.submission.valid_metrics(metrics, number, self.targets)
        metrics = self._joiner.join(entry, valid_metrics)
        evaluation = (evaluated_model(entry), metrics)
        if not metrics or (evaluation == self._last_evaluation and evaluation[0] is not None):
            return []  # further ranks repeat it
        self._last_evaluation = evaluation
        time_ms, clock_sec = int(entry.time_ms), self.clock.clock_sec(entry.time_ms)
        step, samples = self._step_of(entry, number), as_number(entry.metadata.get("samples_count"))
        if number is None and samples and self.submission.benchmark.has_epochs and self.submission.epoch_samples():
            number = round(samples / self.submission.epoch_samples(), 6)
        progress = {"epoch_num": number, "samples_count": samples}
        epoch = {key: as_whole(value) for key, value in progress.items() if value is not None}
        return self._start_by_default() + self._evaluation_records(metrics, epoch, time_ms, clock_sec, step)

    def _by_benchmark(self, entry: Entry) -> Entry:
        """The evaluation with our names. Without a requested target, the first one sets the benchmark's targets."""
        benchmark = self.submission.benchmark
        if self._requested or not benchmark.targets:
            return entry
        entry = self.submission.by_our_names(entry)
        if not self.targets:
            self.targets |= benchmark.targets_of([entry.value], self.submission.target)
            self.missing_metrics = set(self.targets)
        return entry

    def _step_of(self, entry: Entry, epoch: float | None) -> int:
        """The step of an evaluation's values on their curves: samples or whole epochs, else a running number."""
        samples = None if epoch is not None else as_number(evaluated_model(entry))
        number = samples if samples is not None else epoch
        count = self._num_values["eval"] = self._num_values.get("eval", 0) + 1
        return int(number) if number is not None and number.is_integer() else count

    def _evaluation_records(
        self, metrics: dict[str, float], epoch: dict[str, Any], time_ms: int, clock_sec: float, step: int
    ) -> list[Record]:
        """The records of an evaluation, and of its values as curves."""
        if self.stopped:
            return []
        self.missing_metrics -= metrics.keys()
        self._interval.note(epoch, self.submission.epoch_samples())
        values = {"step": step, **epoch, "metrics": metrics}
        curves = {quantities.EVAL + name: value for name, value in metrics.items()}
        curves |= {"epoch": float(epoch["epoch_num"])} if "epoch_num" in epoch else {}
        event = Record("event", time_ms, clock_sec, key="eval_accuracy", values=values)
        return self._thinning.admit([event, Record("metrics", time_ms, clock_sec, step=step, values=curves)])

    def _start_by_default(self) -> list[Record]:
        if self.started or self._default_start is None:
            return []
        return self._start(*self._default_start, by_program=False)

    def _start(self, time_ms: int, clock_sec: float, by_program: bool) -> list[Record]:
        if self.started:
            return []
        self.started, self.program_gave_start = True, by_program
        self._samples.begin(clock_sec)
        return [Record("event", time_ms, clock_sec, key="run_start")]

    def _stop(self, time_ms: int, clock_sec: float, status: str) -> list[Record]:
        if self.stopped or not self.started:
            return []
        self.stopped = True
        end = Record("event", time_ms, clock_sec, key="run_stop", values={"status": status})
        return [*self._thinning.flush(), end]
