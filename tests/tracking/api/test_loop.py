"""A training loop of one's own, tracked by a context manager."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from conf.schema import ConfigError
from tests.support.commands import HANGS_SEC
from tracking.analysis.audit.audit import audit
from tracking.analysis.report import report
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.api import Trial, script_run
from tracking.api.script_process import THIS_PROCESS
from tracking.jobs.watch.signs import Signs
from tracking.lightning import time_trial
from tracking.measure.training import clock
from tracking.record import Failure, documents, journal, run_folder

pytestmark = pytest.mark.slow
LOSSES = [4.0, 3.5, 3.2, 3.1]


def only_run(runs: Path) -> Path:
    (folder,) = runs.glob("2*")
    return folder


def timed_step(trial: Trial, num_samples: int) -> None:
    """A step whose time is not lost in the journal's rounding to microseconds."""
    time.sleep(0.02)
    trial.step(num_samples)


def differences(runs: Path) -> list[str]:
    """Where the audit of a report on these runs disagrees with it."""
    for companion in THIS_PROCESS.companions:  # They add what limited a run.
        companion.wait(HANGS_SEC)
    store = FolderRuns([runs])
    made = report.make(store, ["timetrial"], store.find(["timetrial"]), ["model"])
    return audit(made.plain(), [runs]).differences


def test_a_loop_becomes_a_run(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with time_trial(
        {"val_loss": "<=3.28"}, name="mine", dataset="text", batch_size=4, runs_dir=str(runs), offline=True,
        device="cpu", log_every_n_steps=3, system_metrics_interval_sec=0, params={"width": 8},
    ) as trial:  # fmt: skip
        for epoch, loss in enumerate(LOSSES, 1):
            for _ in range(7):
                trial.step(4, loss)
            with trial.evaluation():
                reached = trial.evaluate({"val_loss": loss}, epoch=epoch)
            if reached:
                break
    folder = only_run(runs)
    result, events = documents.read_json(folder / run_folder.RESULT), journal.events(folder / run_folder.JOURNAL)
    assert result["status"] == "finished"
    metrics = result["metrics"]
    assert (metrics["epochs/to_accuracy"], metrics["epochs/trained"], metrics["eval/best_val_loss"]) == (3, 3, 3.2)
    assert [row.values["samples"] for row in events if row.key == "epoch_stop"] == [28] * 3
    begin, hit = clock.first(events, "run_start"), [row for row in events if row.key == "eval_accuracy"][-1]
    assert begin
    assert metrics["time/to_accuracy_sec"] == pytest.approx(hit.clock_sec - begin.clock_sec)
    assert "throughput/data_wait_fraction" not in metrics  # the loop did not say when its data were there
    rows = [record for record, _ in journal.read(folder / run_folder.JOURNAL) if record.kind == "params"]
    values = {key: value for row in rows for key, value in row.values.items()}
    assert (values["model"], values["dataset"], values["width"], values["target_value"]) == (
        "mine",
        "text",
        8,
        "<=3.28",
    )


def test_a_loss_is_noted_as_it_was_also_where_later_steps_write_to_it(tmp_path: Path) -> None:
    loss = torch.zeros(1)
    with time_trial(
        {"accuracy": 0.9}, runs_dir=str(tmp_path), offline=True, device="cpu", system_metrics_interval_sec=0,
        log_every_n_steps=4,
    ) as trial:  # fmt: skip
        for value in range(8):
            trial.step(8, loss.fill_(value))
        trial.evaluate({"accuracy": 0.95}, epoch=1)
    rows = [record.values for record, _ in journal.read(only_run(tmp_path) / run_folder.JOURNAL)]
    assert [row["train/loss"] for row in rows if "train/loss" in row] == [0, 2, 5.5]  # the first step is by itself


def test_a_loss_that_is_no_number_is_noted_and_seen_to_diverge(tmp_path: Path) -> None:
    with time_trial(runs_dir=str(tmp_path), offline=True, device="cpu", log_every_n_steps=1) as trial:
        for loss in (0.3, math.nan):
            trial.step(8, torch.tensor(loss))
    signs = Signs()
    for record, _ in journal.read(only_run(tmp_path) / run_folder.JOURNAL):
        signs.see(record)
    assert signs.diverged() == "train/loss is nan"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda trial: trial.evaluate(0.95),
            r"trial.evaluate\(0.95\): not metrics. Allowed: values by name, such as {'accuracy': 0.95}",
        ),
        (
            lambda trial: trial.evaluate({"accuracy": 0.95}, epoch=0),
            r"trial.evaluate\(epoch=0\): follows steps, so it is above 0. Next: count from 1, .* or leave epoch out",
        ),
        (
            lambda trial: trial.evaluate({"accuracy": None}, epoch=1),  # type: ignore[dict-item]
            r"trial.evaluate\({'accuracy': ...}\): is None, not a number. Next: give one number, such as 0.95",
        ),
        (
            lambda trial: trial.evaluate({"accuracy": torch.ones(2)}),  # type: ignore[dict-item]
            r"trial.evaluate\({'accuracy': ...}\): is of the type Tensor, not a number",
        ),
        (lambda trial: trial.evaluate({3: 0.5}), r"trial.evaluate\({3: 0.5}\): not metrics"),  # type: ignore[dict-item]
        (
            lambda trial: trial.evaluate({"accuracy": 0.5}, epoch="first"),  # type: ignore[arg-type]
            r"trial.evaluate\(epoch\): is of the type str, not a number",
        ),
        (lambda trial: trial.step(4, torch.ones(4)), r"trial.step\(loss\): has the shape \[4\].*loss.mean\(\)"),
    ],
)
def test_a_call_that_cannot_be_noted_says_how_it_is_made(
    tmp_path: Path, call: Callable[[Trial], object], words: str
) -> None:
    with time_trial(runs_dir=str(tmp_path), offline=True, device="cpu") as trial:
        trial.step(4)
        with pytest.raises(ConfigError, match=words):
            call(trial)


def test_the_last_words_name_what_was_not_evaluated_and_the_command_for_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(THIS_PROCESS, "printed_report_command", False)
    for _ in range(2):
        with time_trial(
            {"accuracy": 0.9}, runs_dir=str(tmp_path), offline=True, device="cpu", experiment="my own"
        ) as trial:
            trial.step(4)
    words = capsys.readouterr().out
    assert words.count("timetrial: target=accuracy: was not evaluated. Next: call trial.evaluate") == 2
    assert words.count(f"report 'my own' --from-folders --runs-dir {tmp_path}\n") == 1


def test_words_beside_a_bar_have_a_line_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tqdm = pytest.importorskip("tqdm").tqdm  # Lightning brings it.
    with tqdm(total=4, file=sys.stdout) as bar, time_trial(runs_dir=str(tmp_path), offline=True, device="cpu") as trial:
        bar.update(2)
        trial.step(4)
    assert "\rtimetrial: run folder" in capsys.readouterr().out  # the bar is wiped before them


def test_a_loop_that_counts_no_epochs_has_none(tmp_path: Path) -> None:
    with time_trial(
        {"accuracy": 0.9}, runs_dir=str(tmp_path), offline=True, device="cpu", system_metrics_interval_sec=0
    ) as trial:
        for value in (0.5, 0.95):
            timed_step(trial, 8)
            trial.evaluate({"accuracy": value})
    metrics = documents.read_json(only_run(tmp_path) / run_folder.RESULT)["metrics"]
    assert metrics["target_reached"] == 1
    assert not [key for key in metrics if key.startswith("epochs/") or key == "time/epoch_sec"]
    assert differences(tmp_path) == []


def test_a_loop_that_does_not_know_its_samples_has_no_rate(tmp_path: Path) -> None:
    with time_trial(
        {"accuracy": 0.9}, runs_dir=str(tmp_path), offline=True, device="cpu", system_metrics_interval_sec=0
    ) as trial:
        trial.forget_samples()  # as the callback of Keras says for batches of an unknown kind
        for epoch in (1, 2):
            timed_step(trial, 0)
            trial.evaluate({"accuracy": 0.95}, epoch=epoch)
    metrics = documents.read_json(only_run(tmp_path) / run_folder.RESULT)["metrics"]
    assert "throughput/samples_per_sec" not in metrics
    assert differences(tmp_path) == []


@pytest.mark.parametrize(
    ("epochs", "steps_after", "trained"),
    [([1, 1, 2], 0, None), ([1, 2], 3, None), ([0.5, 1], 0, None), ([2, 4], 0, None), ([], 3, None), ([1, 2], 0, 2)],
)
def test_how_many_epochs_were_trained_is_said_only_where_each_ended_with_an_evaluation(
    tmp_path: Path, epochs: list[float], steps_after: int, trained: int | None
) -> None:
    target = {"accuracy": 0.9} if epochs else None
    with time_trial(
        target, runs_dir=str(tmp_path), offline=True, device="cpu", system_metrics_interval_sec=0
    ) as trial:  # fmt: skip
        for epoch in epochs:
            timed_step(trial, 8)
            trial.evaluate({"accuracy": 0.95 if epoch == epochs[-1] else 0.5}, epoch=epoch)
        for _ in range(steps_after):
            timed_step(trial, 8)
    metrics = documents.read_json(only_run(tmp_path) / run_folder.RESULT)["metrics"]
    assert metrics.get("epochs/to_accuracy") == (epochs[-1] if epochs else None)
    assert metrics.get("epochs/trained") == trained
    assert ("time/epoch_sec" in metrics) == (trained is not None)
    assert differences(tmp_path) == []


def test_a_loop_that_raises_is_a_failed_run(tmp_path: Path) -> None:
    def train() -> None:
        with time_trial(runs_dir=str(tmp_path), offline=True, device="cpu", system_metrics_interval_sec=0) as trial:
            trial.step(8)
            raise ZeroDivisionError("division by zero")

    with pytest.raises(ZeroDivisionError):
        train()
    failure = documents.read_json(only_run(tmp_path) / run_folder.RESULT)["failure"]
    assert (failure["kind"], failure["message"]) == ("error", "ZeroDivisionError: division by zero")


def test_a_loading_process_that_dies_takes_no_failure_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A DataLoader raises in its handler of SIGCHLD, which comes at any time: also while the failure is written."""

    def raises(signum: int, frame: object) -> None:
        raise RuntimeError("DataLoader worker is killed")

    def failure_of(error: BaseException, rank: int) -> Failure:
        signal.raise_signal(signal.SIGCHLD)
        return script_run_failure_of(error, rank)

    script_run_failure_of = script_run.failure_of
    monkeypatch.setattr(script_run, "failure_of", failure_of)

    def train() -> None:
        with time_trial(runs_dir=str(tmp_path), offline=True, device="cpu", system_metrics_interval_sec=0):
            signal.signal(signal.SIGCHLD, raises)
            raise ConnectionResetError("by peer")

    former = signal.getsignal(signal.SIGCHLD)
    try:
        with pytest.raises(RuntimeError, match="worker is killed"):
            train()
    finally:
        signal.signal(signal.SIGCHLD, former)
    result = documents.read_json(only_run(tmp_path) / run_folder.RESULT)
    assert (result["status"], result["failure"]["message"]) == ("failed", "ConnectionResetError: by peer")


def test_so_does_the_failure_of_another_rank_survive_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(signum: int, frame: object) -> None:
        raise RuntimeError("DataLoader worker is killed")

    def failure_of(error: BaseException, rank: int) -> Failure:
        signal.raise_signal(signal.SIGCHLD)
        return Failure("error", str(error), rank=rank)

    monkeypatch.setattr(script_run, "failure_of", failure_of)
    former = signal.signal(signal.SIGCHLD, raises)
    try:
        with pytest.raises(RuntimeError, match="worker is killed"):
            script_run.write_failure(tmp_path, ConnectionResetError("by peer"), 3)
    finally:
        signal.signal(signal.SIGCHLD, former)
    failure = documents.read_json(tmp_path / run_folder.FAILURE.format(rank=3))
    assert (failure["message"], failure["rank"]) == ("by peer", 3)


def test_the_step_after_an_evaluation_within_an_epoch_is_told_apart(tmp_path: Path) -> None:
    with time_trial(
        {"accuracy": 0.9}, runs_dir=str(tmp_path), offline=True, device="cpu", system_metrics_interval_sec=0,
        log_every_n_steps=2,
    ) as trial:  # fmt: skip
        for epoch in (0.5, 1, 1.5, 2):
            for _ in range(4):
                trial.step(8)
            trial.evaluate({"accuracy": 0.4}, epoch=epoch)
    events = journal.events(only_run(tmp_path) / run_folder.JOURNAL)
    windows = [event.values for event in events if event.key == "throughput_window"]
    assert [window["step"] for window in windows if window.get("after_evaluation")] == [6, 14]
    evaluated = [event.values for event in events if event.key == "eval_accuracy"]
    assert [(values["epoch_num"], values["samples_count"]) for values in evaluated] == [
        (0.5, 32), (1, 64), (1.5, 96), (2, 128),
    ]  # fmt: skip
    rows = [record.values for record, _ in journal.read(only_run(tmp_path) / run_folder.JOURNAL)]
    assert [row["eval_interval_samples"] for row in rows if "eval_interval_samples" in row] == [32]


def test_steps_after_an_evaluation_that_raised_are_training(tmp_path: Path) -> None:
    with time_trial(
        {"accuracy": 0.9}, runs_dir=str(tmp_path), offline=True, device="cpu", system_metrics_interval_sec=0
    ) as trial:
        trial.step(8)
        with pytest.raises(MemoryError), trial.evaluation():
            raise MemoryError("out of memory")  # as a script catches it, to go on with a smaller batch
        trial.step(8)
        trial.evaluate({"accuracy": 0.5})
    keys = [event.key for event in journal.events(only_run(tmp_path) / run_folder.JOURNAL)]
    kept = [key for key in keys if key.startswith("eval_") or key == "epoch_start"]
    assert kept[:4] == ["epoch_start", "eval_start", "eval_stop", "epoch_start"]
