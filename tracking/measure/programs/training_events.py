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
from tracking.measure.programs.declared_words import Found
from tracking.measure.programs.epochs import Epochs, as_number, as_whole
from tracking.measure.programs.mlperf_lines import Entry, Joined, metric_of, place
from tracking.measure.programs.mlperf_log import EVALUATIONS
from tracking.measure.programs.rates import EvaluationPlaces, SampleCounts, StepCounts
from tracking.measure.programs.submission import Submission
from tracking.measure.programs.thinning import Thinning
from tracking.measure.programs.wall_clock import WallClock
from tracking.record import Record

EDGES = {"epoch_start": "epoch", "epoch_stop": "epoch", "eval_start": "eval", "eval_stop": "eval"}


class TrainingEvents:
    """The events of one program. `entry`, `matched` and `record` return a line's records, `end` those at its exit.

    `submission` holds the facts of MLPerf's log so far. `unsaid` are the targets' metrics without a value yet. A single
    accuracy without a name is the first target's metric. If the program gives no start, the clock starts at `began`,
    (wall clock in ms, monotonic seconds), once it has given anything.
    """

    def __init__(
        self, clock: WallClock, targets: Mapping[str, Target] | None = None, began: tuple[int, float] | None = None,
        submission: Submission | None = None, directions: Mapping[str, str] = NO_DIRECTIONS,
        tokens_per_sample: float = 0.0,
    ) -> None:  # fmt: skip
        self.clock = clock
        self.targets = dict(targets or {})
        self._requested = bool(targets)  # else the targets are those of the benchmark in MLPerf's log
        self.unsaid = set(self.targets)
        self._began = began
        self.started = self.stopped = False
        self.own_start = False  # whether the program gave the start of its training
        self.status = ""  # the status of MLPerf's run_stop: success or aborted
        self.submission = submission or Submission()
        self._window_ranks = 0  # the number of ranks in each throughput_window
        self._open: set[str] = set()
        self._epochs = Epochs(self.submission)
        self._joined = Joined(self.targets)
        self._last_evaluation: tuple[Any, dict[str, float]] | None = None
        self._counts, self._evaluations = SampleCounts(tokens_per_sample), EvaluationPlaces()
        self._thin = Thinning(self.targets, directions)
        self._epoch: float | None = None  # a fraction if evaluations come within an epoch
        self._steps = StepCounts()
        self._num_values: dict[str, int] = {}  # the number of values of each metric

    @property
    def left_out(self) -> int:
        """The number of lines that were understood and left out by `thinning`."""
        return self._thin.left_out

    @property
    def params(self) -> dict[str, int]:
        return self.submission.params | self._evaluations.params(self.submission.epoch_samples())

    @property
    def world_size(self) -> int | None:
        return self.submission.world_size

    def entry(self, entry: Entry) -> list[Record]:
        """The records of a line of MLPerf's log."""
        self.submission.read(entry)
        if entry.key == "train_epoch":
            self._epochs.begins(entry.metadata.get("epoch_num"))
        elif entry.key in EVALUATIONS:
            return self._accuracy(self._by_benchmark(entry))
        elif entry.key in ("init_stop", "run_start", "run_stop", "block_start", "block_stop") or entry.key in EDGES:
            return self._interval_edge(entry)
        return []

    def matched(self, matches: Iterable[Found], time_ms: int, clock_sec: float) -> list[Record]:
        """The records of a line's matches, with the time at which it was read. A line holds at most one evaluation."""
        records: list[Record] = []
        metrics: dict[str, float] = {}
        matches = list(matches)
        if any(match.key.startswith(quantities.EVAL) for match in matches):
            self._counts.pause()  # a count in the same line comes after the evaluation
        for match in matches:
            if match.role == "metric" and match.key.startswith(quantities.EVAL):
                metrics[match.key.removeprefix(quantities.EVAL)] = match.value
            else:
                records += self._matched(match, time_ms, clock_sec)
        if not metrics:
            return records
        self._counts.pause()
        so_far = {"epoch_num": self._epoch, "samples_count": self._counts.latest}
        epoch = {key: number for key, number in so_far.items() if number is not None}
        step = self._place(quantities.EVAL + next(iter(metrics)))
        return records + self._start_at_began() + self._evaluated(metrics, epoch, time_ms, clock_sec, step)

    def _matched(self, match: Found, time_ms: int, clock_sec: float) -> list[Record]:
        """The records of a match that is not of an evaluation."""
        if match.role == "start":
            return self._start(time_ms, clock_sec, by_program=True)
        if match.role == "epoch":
            self._epoch = int(match.value) if match.value.is_integer() else match.value
            return []
        if match.role == "step":
            self._steps.counted(int(match.value))
            return []
        records = self._start_at_began()
        if match.role == "samples":
            return records + self._counts.counted(int(match.value), time_ms, clock_sec, int(self._epoch or 0))
        values = {match.key: match.value}
        drawn = Record("metrics", time_ms, clock_sec, step=self._place(match.key), values=values)
        return records + self._thin.kept([drawn])

    def _place(self, key: str) -> int:
        """The place of a metric's value on its curve: the step, samples or epoch, if known, else its number."""
        count = self._num_values[key] = self._num_values.get(key, 0) + 1
        places = (self._steps.latest, self._counts.latest, self._epoch)
        return max(0, int(next((number for number in places if number is not None), count)))

    def record(self, record: Record) -> list[Record]:
        """The records of a line of `$TIMETRIAL_JOURNAL` that `journal_lines` has read. Raises ValueError."""
        record = self._steps.placed(record)
        if record.kind == "metrics":
            return self._start_at_began() + self._thin.kept([record])
        if record.key == "run_start":
            return self._start(record.time_ms, record.clock_sec, by_program=True)
        if record.key in ("init_stop", "warmup_start", "warmup_stop"):
            return self._thin.kept([record])
        if record.key == "throughput_window":
            self._check_ranks(len(record.values["rank_ms"]))
        records = self._start_at_began()
        if record.key == "run_stop":
            return records + self._stop(record.time_ms, record.clock_sec, "success")
        if record.key == "eval_accuracy":
            epoch = {key: value for key, value in record.values.items() if key in ("epoch_num", "samples_count")}
            step = int(record.values.get("step", record.values.get("epoch_num", 0)))
            metrics = record.values["metrics"]
            return records + self._evaluated(metrics, epoch, record.time_ms, record.clock_sec, step)
        if record.key in EDGES and not self._opens_or_closes(record.key):
            return records
        return records + self._thin.kept([record])

    def _check_ranks(self, number: int) -> None:
        """Raise ValueError unless every window has the same number of ranks, so that a rank's windows can be added."""
        self._window_ranks = self._window_ranks or number
        if number != self._window_ranks:
            raise ValueError(f"rank_ms: has {number} ranks, but {self._window_ranks} before")

    def end(self, time_ms: int, clock_sec: float, status: str = "success") -> list[Record]:
        """The records of the program's exit: the end of a training that began and gave no end."""
        return self._stop(time_ms, clock_sec, status) if self.started else []

    def _interval_edge(self, entry: Entry) -> list[Record]:
        time_ms, clock_sec = int(entry.time_ms), self.clock.clock_sec(entry.time_ms)
        if entry.key == "run_start":
            return self._start(time_ms, clock_sec, by_program=True)
        if entry.key == "init_stop":
            return [] if self.started else [Record("event", time_ms, clock_sec, key="init_stop")]
        records = self._start_at_began()
        if entry.key == "run_stop":
            self.status = checked_values.text(entry.metadata.get("status")) or "success"
            return records + self._stop(time_ms, clock_sec, self.status)
        if self.stopped:
            return []
        if entry.key.startswith("block_"):
            return records + self._thin.kept(self._epochs.block(entry, time_ms, clock_sec))
        if not self._opens_or_closes(entry.key):
            return records
        made = self._epochs.edge(entry, time_ms, clock_sec)
        self._epoch = made[-1].values.get("epoch_num", self._epoch) if made else self._epoch
        return records + self._thin.kept(made)

    def _opens_or_closes(self, key: str) -> bool:
        """Whether an edge opens or closes its interval; other edges come from further ranks."""
        name, _, edge = key.partition("_")
        if (edge == "start") == (name in self._open):
            return False
        (self._open.add if edge == "start" else self._open.discard)(name)
        return True

    def _accuracy(self, entry: Entry) -> list[Record]:
        if self.stopped:
            self.submission.note("behind", "evaluations after run_stop")
            return []
        value, name = entry.value, metric_of(entry) or next(iter(self.targets), "accuracy")
        metrics = {str(key): number for key, number in value.items()} if isinstance(value, dict) else {name: value}
        number = self._epochs.completed(entry)
        fitting = self.submission.fitting(metrics, number, self.targets)
        metrics = self._joined.whole(entry, fitting)
        evaluation = (place(entry), metrics)
        if not metrics or (evaluation == self._last_evaluation and evaluation[0] is not None):
            return []  # further ranks repeat it
        self._last_evaluation = evaluation
        time_ms, clock_sec = int(entry.time_ms), self.clock.clock_sec(entry.time_ms)
        step, samples = self._step_of(entry, number), as_number(entry.metadata.get("samples_count"))
        if number is None and samples and self.submission.benchmark.has_epochs and self.submission.epoch_samples():
            number = round(samples / self.submission.epoch_samples(), 6)
        so_far = {"epoch_num": number, "samples_count": samples}
        epoch = {key: as_whole(value) for key, value in so_far.items() if value is not None}
        return self._start_at_began() + self._evaluated(metrics, epoch, time_ms, clock_sec, step)

    def _by_benchmark(self, entry: Entry) -> Entry:
        """An evaluation by our names. Without a requested target, the benchmark's own holds from the first one on."""
        benchmark = self.submission.benchmark
        if self._requested or not benchmark.targets:
            return entry
        entry = self.submission.by_our_names(entry)
        if not self.targets:
            self.targets |= benchmark.targets_of([entry.value], self.submission.target)
            self.unsaid = set(self.targets)
        return entry

    def _step_of(self, entry: Entry, epoch: float | None) -> int:
        """The step of an evaluation's values on their curves: samples or whole epochs, else a running number."""
        samples = None if epoch is not None else as_number(place(entry))
        number = samples if samples is not None else epoch
        count = self._num_values["eval"] = self._num_values.get("eval", 0) + 1
        return int(number) if number is not None and number.is_integer() else count

    def _evaluated(
        self, metrics: dict[str, float], epoch: dict[str, Any], time_ms: int, clock_sec: float, step: int
    ) -> list[Record]:
        """The records of an evaluation, and of its values as curves."""
        if self.stopped:
            return []
        self.unsaid -= metrics.keys()
        self._evaluations.note(epoch, self.submission.epoch_samples())
        values = {"step": step, **epoch, "metrics": metrics}
        curves = {quantities.EVAL + name: value for name, value in metrics.items()}
        curves |= {"epoch": float(epoch["epoch_num"])} if "epoch_num" in epoch else {}
        event = Record("event", time_ms, clock_sec, key="eval_accuracy", values=values)
        return self._thin.kept([event, Record("metrics", time_ms, clock_sec, step=step, values=curves)])

    def _start_at_began(self) -> list[Record]:
        if self.started or self._began is None:
            return []
        return self._start(*self._began, by_program=False)

    def _start(self, time_ms: int, clock_sec: float, by_program: bool) -> list[Record]:
        if self.started:
            return []
        self.started, self.own_start = True, by_program
        self._counts.begin(clock_sec)
        return [Record("event", time_ms, clock_sec, key="run_start")]

    def _stop(self, time_ms: int, clock_sec: float, status: str) -> list[Record]:
        if self.stopped or not self.started:
            return []
        self.stopped = True
        end = Record("event", time_ms, clock_sec, key="run_stop", values={"status": status})
        return [*self._thin.rest(), end]
