"""A run's progress on the terminal, drawn from its journal."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.console import Console

from conf.target import Target, is_at_most, text
from tracking.base import quantities
from tracking.base.console import Drawing
from tracking.base.number_text import epoch_text
from tracking.jobs.follow.job_words import duration, remark
from tracking.jobs.follow.waiting import PARTS, Waiting
from tracking.record import Checkpoint, Record, attempts, run_folder

LINES_PER_HALVING = 20  # after so many lines, half as many evaluations are printed
PHASES = {key: words for key, (words, _) in PARTS.items()} | {
    "run_start": "training",
    "eval_start": "evaluating",
    "epoch_start": "training",
    "run_stop": "testing",
    "profile_start": "tracing kernels",
}
OFF_THE_CLOCK = ("testing", "tracing kernels")
NOT_WRITTEN = {"model_saved": "the weights were not saved", "model_exported": "no model for MLflow"}


class JobLines:
    """Lines on a job that runs beside others: remarks, and what its start waits for."""

    def __init__(self, console: Console, name: str, waiting: Waiting) -> None:
        self._console = console
        self._name = name
        self._waiting = waiting
        self._drawing = Drawing(console, f"{name}: what it waits for is not shown")

    def update(self, record: Record) -> None:
        """Print a record's remark."""
        self._waiting.see(record)
        if words := remark(record):
            self._console.print(f"  {self._name}: {words}", soft_wrap=True)

    def wait(self) -> None:
        """Print what a start waits for. Errors are not raised."""
        with self._drawing:
            if words := self._waiting.line(run_folder.now_ms()):
                self._console.print(f"  {self._name}: {words}", soft_wrap=True)

    def close(self) -> None: ...


class RunProgress:
    """A progress bar over the steps of a run; without a terminal, one line for an evaluation.

    `checkpoint`: the run continues from it, and the given records begin after it.
    """

    def __init__(
        self, console: Console, name: str, targets: Mapping[str, Target] | None = None, waiting: Waiting | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:  # fmt: skip
        from tracking.jobs.follow.progress_bar import progress_bar  # Here: the run has begun by now.

        self._console = console
        self._name = name
        self._targets = targets or {}
        self._waiting = waiting
        self._progress = progress_bar(console, waiting)
        self._task = self._progress.add_task("starting", total=None, detail="", left="")
        self._phase = ""
        self._schedule = attempts.Schedule(checkpoint.step if checkpoint else 0)
        self._epoch = 0
        self._epoch_start_sec = 0.0
        self._seen: dict[str, float] = {}
        self._in_tokens = False
        self._best: dict[str, float] = {}
        self._num_evaluations = self._num_lines = 0
        self._reached = False
        self._left_out = ""  # the newest evaluation's line if it was not printed
        self._notes = {
            attempts.RESUME: self._resumed, "run_start": self._run_start, "run_stop": self._run_stop,
            "throughput_window": self._window, "epoch_start": self._epoch_start, "epoch_stop": self._epoch_stop,
            "eval_accuracy": self._evaluated, "profile_stop": self._profiled,
        }  # fmt: skip
        self._drawing = Drawing(console, f"{name}: some of its progress is not shown")

    def start(self) -> RunProgress:
        with self._drawing:
            self._progress.start()
        return self

    def close(self) -> None:
        with self._drawing:
            self._progress.stop()
            self._print_left_out()  # however the run ended

    def __enter__(self) -> RunProgress:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    def update(self, record: Record) -> None:
        """Draw a record. Errors are not raised: the caller watches over the run."""
        with self._drawing:
            self._update(record)

    def wait(self) -> None:
        """Without a terminal, print what a start waits for. Errors are not raised."""
        with self._drawing:
            words = "" if self._console.is_terminal or not self._waiting else self._waiting.line(run_folder.now_ms())
            if words:
                self._console.print(f"{self._name}: {words}", soft_wrap=True)

    def _update(self, record: Record) -> None:
        if self._waiting:
            self._waiting.see(record)
        if record.kind == "metrics" and quantities.SYSTEM_CPU_UTILIZATION_PERCENTAGE not in record.values:
            self._seen |= record.values
        if words := remark(record):
            self._console.print(f"{self._name}: {words}", soft_wrap=True)
        if record.kind != "event":
            return
        self._phase = PHASES.get(str(record.key), self._phase)
        if self._waiting and self._waiting.part:
            self._phase = self._waiting.part
        self._schedule.see(record)
        if note := self._notes.get(str(record.key)):
            note(record)
        if "error" in record.values and (missing := what_is_missing(record)):
            self._console.print(f"{self._name}: {missing}: {record.values['error']}", soft_wrap=True)
        whole = f" of {self._schedule.epochs}" if self._schedule.epochs else ""
        position = f"epoch {self._epoch}{whole}, " if self._epoch and self._phase not in OFF_THE_CLOCK else ""
        self._progress.update(self._task, description=position + self._phase, detail=self._detail())

    def _resumed(self, record: Record) -> None:
        self._progress.update(self._task, completed=self._schedule.step, left="")

    def _run_start(self, record: Record) -> None:
        total = self._schedule.num_steps or None  # unknown for a program
        self._progress.update(self._task, total=total, completed=self._schedule.step)

    def _run_stop(self, record: Record) -> None:
        self._progress.update(self._task, left="")

    def _print_left_out(self) -> None:
        if self._left_out:
            self._console.print(self._left_out, soft_wrap=True)
        self._left_out = ""

    def _window(self, record: Record) -> None:
        self._in_tokens = "tokens" in record.values and record.values["tokens"] == record.values["samples"]
        if self._schedule.batches:
            self._progress.update(self._task, completed=self._schedule.step, left=self._left(record))

    def _epoch_start(self, record: Record) -> None:
        if "epoch_num" not in record.values:
            return
        self._epoch, self._epoch_start_sec = record.values["epoch_num"], record.clock_sec

    def _epoch_stop(self, record: Record) -> None:
        """Show the epoch's rate: the last window may have few steps, so its own rate says little."""
        if "samples" in record.values:
            epoch_sec = record.clock_sec - self._epoch_start_sec
            self._seen[quantities.THROUGHPUT_SAMPLES_PER_SEC] = record.values["samples"] / epoch_sec

    def _profiled(self, record: Record) -> None:
        if "error" in record.values:
            self._console.print(f"{self._name}: no profile: {record.values['error']}", soft_wrap=True)
        for note in record.values.get("notes", ()):
            self._console.print(f"{self._name}: profile: {note}", soft_wrap=True)

    def _evaluated(self, record: Record) -> None:
        for name, value in record.values["metrics"].items():
            self._seen[quantities.EVAL + name] = value
            if name in self._targets and math.isfinite(value):
                better = min if is_at_most(self._targets[name]) else max
                self._best[name] = better(value, self._best.get(name, value))
        if self._console.is_terminal:
            return
        number = record.values.get("epoch_num")
        epoch = "evaluation:" if number is None else f"epoch {epoch_text(number)}"
        of = f"/{self._schedule.epochs}" if self._schedule.epochs else ""
        self._left_out = f"{self._name}: {epoch}{of} {self._detail()}"
        if self._is_line(record.values["metrics"]):
            self._print_left_out()

    def _is_line(self, metrics: Mapping[str, float]) -> bool:
        """Whether to print this evaluation: the early ones, then ever fewer, and always the first at the target."""
        self._num_evaluations += 1
        reaches = not self._reached and bool(self._targets) and attempts.reached(metrics, self._targets)
        self._reached |= reaches
        if reaches or (self._num_evaluations - 1) % 2 ** (self._num_lines // LINES_PER_HALVING) == 0:
            self._num_lines += 1
            return True
        return False

    def _left(self, record: Record) -> str:
        left_sec = self._schedule.left_sec(record.clock_sec)
        return "" if left_sec is None else f"{duration(left_sec)} left at most"

    def _detail(self) -> str:
        evaluated = [key for key in self._seen if key.startswith(quantities.EVAL)]
        evaluated_loss = quantities.EVAL + "loss"
        if len(evaluated) > 1 and "loss" not in self._targets:  # The training loss is enough for a line.
            evaluated = [key for key in evaluated if key != evaluated_loss]
        texts = {key: quantities.text(key, value) for key, value in self._seen.items()}
        texts |= {key: self._metric(key) for key in evaluated}
        if quantities.TRAIN_LOSS in texts:
            loss_name = "train loss" if evaluated_loss in evaluated else "loss"
            texts[quantities.TRAIN_LOSS] = f"{loss_name} {texts[quantities.TRAIN_LOSS]}"
        rate = quantities.THROUGHPUT_SAMPLES_PER_SEC
        if self._in_tokens and rate in texts:
            texts[rate] = f"{self._seen[rate]:,.0f}{quantities.unit(quantities.THROUGHPUT_TOKENS_PER_SEC)}"
        return "  ".join(texts[key] for key in (quantities.TRAIN_LOSS, rate, *evaluated) if key in texts)

    def _metric(self, key: str) -> str:
        """A metric of an evaluation: its value, its target, and an earlier best value."""
        name = key.removeprefix(quantities.EVAL)
        target = f" of {text(self._targets[name])}" if name in self._targets else ""
        best = self._best.get(name, self._seen[key])  # Values that are not finite have no best.
        earlier = name in self._targets and best != self._seen[key] and math.isfinite(best)
        behind = f" (best {quantities.text(key, best)})" if earlier else ""
        return f"{name} {quantities.text(key, self._seen[key])}{target}{behind}"


def what_is_missing(record: Record) -> str:
    """What a run is missing because of an event's error; empty for events that name their error themselves."""
    if record.key in ("checkpoint_stop", "checkpoint_saved"):
        values = record.values
        place = f"step {values['step']}" if "step" in values else f"epoch {values['epoch_num']}"
        return f"no checkpoint after {place}"
    return NOT_WRITTEN.get(str(record.key), "")
