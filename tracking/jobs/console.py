"""What the terminal shows: progress drawn from the journal, and the table at the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tracking.run import Record, Result, evaluations, run_folder

PHASES = {
    "init_start": "importing PyTorch",
    "warmup_start": "compiling and warming up",
    "run_start": "training",
    "eval_start": "evaluating",
    "epoch_start": "training",
    "run_stop": "testing",
}


class RunProgress:
    """A progress bar over epochs on a terminal; elsewhere a line an evaluation."""

    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=None, detail="")
        self._epochs = self._batches = 0
        self._epoch_start = 0.0
        self._seen: dict[str, float] = {}

    def __enter__(self) -> RunProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, record: Record) -> None:
        if record.kind == "metrics" and "system/cpu_utilization_percentage" not in record.values:
            self._seen |= record.values
        if record.kind != "event":
            return
        if record.key in PHASES:
            self._progress.update(self._task, description=PHASES[record.key])
        if record.key == "run_start":
            self._epochs, self._batches = int(record.values["max_epochs"]), int(record.values["num_batches"])
            self._progress.update(self._task, total=self._epochs * self._batches)
        if record.key == "throughput_window":
            self._progress.update(self._task, completed=record.values["step"], detail=self._detail())
        if record.key == "epoch_start":
            self._epoch_start = record.clock_sec
        if record.key == "epoch_stop":  # the last window's rate, of what steps were left over, says little of the epoch
            epoch_sec = record.clock_sec - self._epoch_start
            self._seen["throughput/samples_per_sec"] = record.values["samples"] / epoch_sec
        if record.key == "checkpoint_stop" and "error" in record.values:
            epoch, error = record.values["epoch_num"], record.values["error"]
            self._console.print(f"{self._name}: no checkpoint after epoch {epoch}: {error}", soft_wrap=True)
        if record.key == "model_saved" and "error" in record.values:
            self._console.print(f"{self._name}: the weights were not saved: {record.values['error']}", soft_wrap=True)
        if record.key == "eval_accuracy":
            self._seen |= {f"eval/{name}": value for name, value in record.values["metrics"].items()}
            self._progress.update(self._task, detail=self._detail())
            if not self._console.is_terminal:
                self._console.print(f"{self._name}: epoch {record.values['epoch_num']}/{self._epochs} {self._detail()}")

    def _detail(self) -> str:
        texts = {"train/loss": "loss {:.3g}", "throughput/samples_per_sec": "{:,.0f} samples/s"}
        texts |= {key: f"{key.removeprefix('eval/')} {{:.4g}}" for key in self._seen if key.startswith("eval/")}
        texts.pop("eval/loss", None)  # one loss is enough for a line
        return "  ".join(text.format(self._seen[key]) for key, text in texts.items() if key in self._seen)


def run_table(name: str, folder: Path, result: Result) -> Table:
    """What a run measured, or why it failed."""
    table = Table(title=name, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    for row in run_rows(result):
        table.add_row(*row)
    if (folder / run_folder.MODEL).exists():
        table.add_row("weights", str(folder / run_folder.MODEL))
    table.add_row("run folder", str(folder))
    return table


def run_rows(result: Result) -> list[tuple[str, str]]:
    if result.failure is not None:
        return [("status", f"{result.status}: {result.failure.kind}"), ("cause", result.failure.message)]
    metrics = result.metrics
    rows = [("target", ", ".join(f"{name} {value:g}" for name, value in result.targets.items()) or "none")]
    rows.append(("best", best(result)))
    if "time/to_accuracy_sec" in metrics:
        rows.append(("time to accuracy", f"{seconds(metrics, 'time/to_accuracy_sec')} (MLPerf's clock)"))
        rows.append(("", f"{seconds(metrics, 'time/to_accuracy_train_sec')} (DAWNBench's: without evaluation)"))
        rows.append(("epochs", f"{metrics['epochs/to_accuracy']:g}"))
    elif "time/resumed_to_accuracy_train_sec" in metrics:
        rows.append(("time to accuracy", "none: the run was interrupted"))
    elif result.targets:
        rows.append(("time to accuracy", "target not reached"))
    elif not result.evaluations:
        rows.append(("time to accuracy", "none: this dataset has no accuracy, it measures speed alone"))
    if "throughput/samples_per_sec" in metrics:
        rate = metrics["throughput/samples_per_sec"]
        rows.append(
            (
                "throughput",
                f"{rate:,.0f} {result.unit}/s in the steady state (windows: {result.windows['num_windows']})",
            )
        )
    if "time/eval_sec" in metrics and "time/train_sec" in metrics:
        share = metrics["time/eval_sec"] / (metrics["time/eval_sec"] + metrics["time/train_sec"])
        rows.append(("evaluation", f"{share:.0%} of the time"))
    rows += resumed_rows(result)
    rows.append(("world size", f"{metrics['world_size']:g}"))
    rows.append(("before the clock", f"{seconds(metrics, 'time/init_sec')} from the command to the first data"))
    if "cost/to_accuracy_usd" in metrics:
        rows.append(("cost to accuracy", f"{metrics['cost/to_accuracy_usd']:.4f} USD"))
    tests = {key: value for key, value in metrics.items() if key.startswith("test/")}
    if tests:
        rows.append(("test set", ", ".join(f"{key[5:]} {value:.4g}" for key, value in tests.items())))
    return rows


def resumed_rows(result: Result) -> list[tuple[str, str]]:
    """What became of a run that was interrupted; nothing of others."""
    if not result.resumes:
        return []
    metrics = result.metrics
    after = ", ".join(f"epoch {resume['epoch_num']} ({resume['after']})" for resume in result.resumes)
    rows = [("resumed after", after)]
    if "time/resumed_to_accuracy_train_sec" in metrics:
        in_all = seconds(metrics, "time/resumed_to_accuracy_sec")
        trained = seconds(metrics, "time/resumed_to_accuracy_train_sec")
        rows.append(("to the target", f"{in_all} with all interruptions, {trained} of training that counted"))
    rows.append(("interruptions", f"{seconds(metrics, 'resume/lost_sec')} of training were lost"))
    rows.append(("", f"{seconds(metrics, 'resume/down_sec')} nothing was trained"))
    if result.changed:
        rows.append(("changed between", ", ".join(result.changed)))
    return rows


def best(result: Result) -> str:
    """The best value of each metric that has one (see tracking.run.evaluations)."""
    values = {key: value for key, value in result.metrics.items() if key.startswith(evaluations.BEST)}
    shown = ", ".join(f"{key.removeprefix(evaluations.BEST)} {value:.4g}" for key, value in values.items())
    return shown or "no evaluation"


def seconds(metrics: Mapping[str, float], key: str) -> str:
    return f"{metrics[key]:.2f} s" if key in metrics else "-"
