"""Evaluations within epochs, in small trainings in this process: where they are, and what is measured around them."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist

from conf.evaluation import Intervals
from conf.schema import ConfigError, RunConfig
from tracking.analysis.audit.journals import JournalFigures
from tracking.base import quantities
from tracking.measure.training import MeasuringCallback, Meter, Ranks, clock, plan_evaluations, throughput
from tracking.record import Journal, journal
from tracking.record.journal import Record
from trainers.loop import evaluation_times
from trainers.workload import TrialModule

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
EPOCHS, STEPS = 3, 4


@pytest.fixture(scope="module", autouse=True)
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Line(TrialModule):
    """A weight; its accuracy is 0.1 for each step that was trained. An evaluation takes longer than any step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.modes: list[bool] = []

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.modes.append(self.training)
        return self.weight.square()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        time.sleep(0.02)

    def metrics(self) -> dict[str, float]:
        return {"accuracy": 0.1 * self.trainer.global_step}


class Batches:
    def __init__(self, num: int) -> None:
        self.num = num

    def __len__(self) -> int:
        return self.num

    def __iter__(self) -> Iterator[dict[str, int]]:
        return iter([{"num_samples": 10}] * (self.num - 1) + [{"num_samples": 5}])


@dataclass
class Trained:
    events: list[Record]
    callback: MeasuringCallback
    module: Line
    folder: Path

    def of(self, *keys: str) -> list[tuple[str, Any]]:
        return [(event.key or "", event.values.get("epoch_num")) for event in self.events if event.key in keys]


def trained(
    folder: Path, asked: Intervals, target: float = 5.0, window: int = 2, steps: int | None = None, **options: Any
) -> Trained:
    config = RunConfig(gpus=0, log_every_n_steps=window, **options)
    config.model.optimizer.lr, config.model.metrics = 0.01, {"accuracy": [0.0, 1.0]}
    config.model.targets = {config.dataset.name: {"accuracy": target}}
    log, module = Journal(folder / "journal.jsonl"), Line()
    callback = MeasuringCallback(config, torch.device("cpu"), log, lambda trainer: None, lambda trainer: None)
    trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=EPOCHS, callbacks=[callback], barebones=True)
    evaluation_times.follow(trainer, plan_evaluations(asked, STEPS, EPOCHS, 10, limited=False, steps=steps))
    trainer.fit(module, Batches(STEPS), Batches(1))
    log.close()
    return Trained(journal.events(folder / "journal.jsonl"), callback, module, folder)


@pytest.mark.parametrize(
    ("asked", "steps"),
    [
        (Intervals(), [4, 8, 12]),
        (Intervals(every_steps=3), [3, 6, 9, 12]),
        (Intervals(every_steps=5), [5, 10, 12]),
        (Intervals(every_steps=2, after_steps=5), [6, 8, 10, 12]),
        (Intervals(at_epochs=(2,)), [8]),
    ],
)
def test_they_come_after_the_steps_of_the_plan(tmp_path: Path, asked: Intervals, steps: list[int]) -> None:
    run = trained(tmp_path, asked)
    evaluated = [event.values for event in run.events if event.key == "eval_accuracy"]
    assert [values["step"] for values in evaluated] == steps
    assert [values["epoch_num"] for values in evaluated] == [step / STEPS for step in steps]
    whole, within = divmod(steps[-2] if len(steps) > 1 else steps[0], STEPS)
    assert evaluated[-2 if len(steps) > 1 else -1]["samples_count"] == 35 * whole + 10 * within
    assert all(run.module.modes), "every step trains in training mode"


def test_an_evaluation_within_an_epoch_lies_between_its_events(tmp_path: Path) -> None:
    run = trained(tmp_path, Intervals(every_steps=3), target=0.6)
    assert run.of("epoch_start", "epoch_stop", "eval_start", "eval_accuracy", "eval_stop") == [
        ("epoch_start", 1), ("eval_start", 0.75), ("eval_accuracy", 0.75), ("eval_stop", 0.75), ("epoch_stop", 1),
        ("epoch_start", 2), ("eval_start", 1.5), ("eval_accuracy", 1.5), ("eval_stop", 1.5), ("epoch_stop", 2),
    ]  # fmt: skip
    stops = [event.values for event in run.events if event.key == "epoch_stop"]
    assert stops == [{"epoch_num": 1, "samples": 35}, {"epoch_num": 2, "samples": 20, "part": 0.5}]
    assert run.events[-1].values == {"status": "success"}


def test_one_at_the_end_of_an_epoch_comes_after_it(tmp_path: Path) -> None:
    run = trained(tmp_path, Intervals(every_steps=2), target=0.4)
    assert run.of("epoch_stop", "eval_start") == [("eval_start", 0.5), ("epoch_stop", 1), ("eval_start", 1)]


def test_windows_hold_every_step_and_no_evaluation(tmp_path: Path) -> None:
    """No instant of an epoch is in a window and in an evaluation."""
    run = trained(tmp_path, Intervals(every_steps=3), window=4)
    windows = run.callback.meter.windows
    assert [window.step for window in windows] == [1, 3, 4, 6, 8, 9, 12]
    assert [window.section for window in windows] == [0, 0, 1, 0, 1, 0, 1]
    assert [window.samples for window in windows] == [10, 20, 5, 20, 15, 10, 25]
    epochs, evaluations = clock.intervals(run.events, "epoch"), clock.intervals(run.events, "eval")
    inside = [end - start for start, end in evaluations if any(a <= start and end <= b for a, b in epochs)]
    total = sum(end - start for start, end in epochs) - sum(inside)
    assert len(inside) == 3
    assert 0 < sum(window.seconds for window in windows) <= total + 1e-4 * len(windows)
    figures = JournalFigures(tmp_path)
    summary = throughput.summarize(windows, 1)
    assert summary["throughput/samples_per_sec"] == pytest.approx(figures.value("throughput/samples_per_sec"), rel=1e-3)
    assert [window.step for window in throughput.read_windows(run.events)] == [window.step for window in windows]


def test_the_figures_follow(tmp_path: Path) -> None:
    run = trained(tmp_path, Intervals(every_steps=3), target=0.6)
    figures = clock.summarize(run.events, {"accuracy": 0.6})
    assert figures["epochs/to_accuracy"] == 1.5 == figures["epochs/trained"]
    assert figures["evaluations/to_accuracy"] == 2
    evaluated = [event.clock_sec for event in run.events if event.key == "eval_accuracy"]
    assert figures["time/evaluation_interval_sec"] == evaluated[1] - evaluated[0]
    assert figures["time/to_accuracy_sec"] - figures["time/to_accuracy_train_sec"] > 0.02
    (tmp_path / "config.yaml").write_text("model: {}")
    Journal(tmp_path / "journal.jsonl").params({"target_metric": "accuracy", "target_value": "0.6"})
    Journal(tmp_path / "journal.jsonl").metrics(figures)
    again = JournalFigures(tmp_path)
    for key in ("time/epoch_sec", "epochs/trained", "epochs/to_accuracy", "time/to_accuracy_train_sec"):
        assert figures[key] == pytest.approx(again.value(key)), key


def test_a_miss_has_what_it_trained_without_the_evaluations_within_epochs(tmp_path: Path) -> None:
    run = trained(tmp_path, Intervals(every_steps=3))
    figures = clock.summarize(run.events, {"accuracy": 5.0})
    (tmp_path / "config.yaml").write_text("model: {}")
    (tmp_path / "result.json").write_text('{"status": "finished"}')
    Journal(tmp_path / "journal.jsonl").params({"target_metric": "accuracy", "target_value": "5.0"})
    again = JournalFigures(tmp_path)
    assert again.missed
    key = quantities.TIME_TRAIN_SEC
    assert again.at_least(quantities.TIME_TO_ACCURACY_TRAIN_SEC) == pytest.approx(figures[key])
    total = figures[key] + figures[quantities.TIME_EVAL_SEC]
    assert again.at_least(quantities.TIME_TO_ACCURACY_SEC) == pytest.approx(total)


def test_the_slowest_process_counts_in_each_section_between_evaluations() -> None:
    """They wait for each other in an evaluation, so a section takes as long as the one that was last in it."""
    first = throughput.Window(2, 1, 20, (1.0, 3.0), (0.0, 0.0), (), ())
    second = throughput.Window(4, 1, 20, (4.0, 1.0), (0.0, 0.0), (), (), section=1)
    assert throughput.total_sec([first, second]) == 7.0
    assert throughput.total_sec([first, throughput.Window(4, 1, 20, (4.0, 1.0), (0.0, 0.0), (), ())]) == 5.0


AFTER = quantities.THROUGHPUT_STEP_MS_AFTER_EVALUATION


def test_the_step_after_an_evaluation_has_a_figure_of_its_own() -> None:
    def window(step: int, *step_sec: float, after_evaluation: bool = False) -> throughput.Window:
        waits = (0.0,) * len(step_sec)
        return throughput.Window(step, 1, 10, (sum(step_sec),), (0.0,), step_sec, waits, (), 1, after_evaluation)

    windows = [window(1, 1.0), window(3, 0.1, 0.1), window(5, 0.1, 0.1)]
    assert AFTER not in throughput.summarize(windows, 1)
    windows += [window(7, 0.3, 0.1, after_evaluation=True), window(9, 0.1, 0.1), window(10, 0.5, after_evaluation=True)]
    assert throughput.summarize(windows, 1)[AFTER] == pytest.approx(400)


def test_each_evaluation_within_an_epoch_marks_the_window_after_it(tmp_path: Path) -> None:
    run = trained(tmp_path, Intervals(every_steps=3))
    windows = run.callback.meter.windows
    assert [window.step for window in windows if window.after_evaluation] == [4, 8, 10]
    assert [window.step for window in throughput.read_windows(run.events) if window.after_evaluation] == [4, 8, 10]


def test_a_resume_within_an_epoch_is_no_evaluation(tmp_path: Path) -> None:
    def steps(meter: Meter, places: range) -> None:
        for place in places:
            meter.batch_ready(10)
            meter.step_done(None, place)

    log = Journal(tmp_path / "journal.jsonl")
    first, again = (Meter(torch.device("cpu"), Ranks(1), log, 2) for _ in range(2))
    first.start()
    first.open()
    steps(first, range(1, 5))
    first.close()
    log.event("eval_stop")
    again.load_state_dict(first.state_dict())
    again.start()
    again.open()
    steps(again, range(5, 13))
    again.close()
    log.event("eval_stop")
    again.open(after_evaluation=True)
    steps(again, range(13, 17))
    again.close()
    log.close()
    assert [window.step for window in again.windows if window.after_evaluation] == [14]
    events = journal.events(tmp_path / "journal.jsonl")
    assert [window.step for window in throughput.read_windows(events) if window.after_evaluation] == [14]
    for event in events:  # as an earlier version wrote them
        event.values.pop("after_evaluation", None)
    assert [window.step for window in throughput.read_windows(events) if window.after_evaluation] == [14]


def test_collections_outside_the_steps_are_no_part_of_a_window(tmp_path: Path) -> None:
    def slow(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            time.sleep(0.05)

    log = Journal(tmp_path / "journal.jsonl")
    meter = Meter(torch.device("cpu"), Ranks(1), log, 2)
    gc.callbacks.append(slow)
    gc.disable()
    try:
        gc.collect()  # as compiling and warming up do
        meter.start()
        for _ in range(2):
            meter.open()
            for place in range(1, 5):
                meter.batch_ready(10)
                meter.step_done(None, place)
            meter.close()
            gc.collect()  # as an evaluation does
    finally:
        gc.enable()
        gc.callbacks.remove(slow)
    log.close()
    windows = [event for event in journal.events(tmp_path / "journal.jsonl") if event.key == "throughput_window"]
    assert len(windows) == 5
    assert not any("rank_gc_ms" in window.values for window in windows)


def test_sections_are_counted_within_an_epoch() -> None:
    meter = Meter(torch.device("cpu"), Ranks(1), None, 10)
    sections = []
    for epoch in (1, 1, 1, 2, 2):
        meter.epoch_num = epoch
        meter.open()
        sections.append(meter._section[1])
    assert sections == [0, 1, 2, 0, 1]


def test_a_logged_value_of_an_epoch_is_one_whatever_evaluations_lie_within(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def training_step(module: Line, batch: Any, batch_idx: int) -> torch.Tensor:
        module.log("train/mine", float(batch_idx), on_step=False, on_epoch=True, reduce_fx="max")
        return module.weight.square()

    def validation_step(module: Line, batch: Any, batch_idx: int) -> None:
        module.log("valid/mine", float(module.trainer.global_step))

    monkeypatch.setattr(Line, "training_step", training_step)
    monkeypatch.setattr(Line, "validation_step", validation_step)
    run = trained(tmp_path, Intervals(every_steps=1))
    noted = [record.values for record, _ in journal.read(run.folder / "journal.jsonl") if record.kind == "metrics"]
    assert [values["train/mine"] for values in noted if "train/mine" in values] == [STEPS - 1.0] * EPOCHS
    evaluated = [values["valid/mine"] for values in noted if "valid/mine" in values]
    assert evaluated == [float(step) for step in range(1, EPOCHS * STEPS + 1)]


@pytest.mark.parametrize(
    ("asked", "steps", "expected"),
    [
        (Intervals(), 10, [4, 8, 10]),
        (Intervals(every_steps=3), 10, [3, 6, 9, 10]),
        (Intervals(at_epochs=(3,)), 10, [10]),
        (Intervals(), 12, [4, 8, 12]),
    ],
)
def test_a_training_of_so_many_steps_ends_within_its_last_epoch_and_is_evaluated_there(
    tmp_path: Path, asked: Intervals, steps: int, expected: list[int]
) -> None:
    run = trained(tmp_path, asked, steps=steps)
    evaluated = [event.values for event in run.events if event.key == "eval_accuracy"]
    assert [values["step"] for values in evaluated] == expected
    assert run.callback.meter.step == steps
    last = [event.values for event in run.events if event.key == "epoch_stop"][-1]
    assert last.get("part", 1) == (0.5 if steps == 10 else 1)


def test_an_interval_longer_than_the_steps_of_a_cut_training_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the training has 10 steps \(3 epochs of 4, the last one cut\)"):
        plan_evaluations(Intervals(every_steps=11), STEPS, EPOCHS, 10, limited=False, steps=10)


def test_a_target_reached_at_the_last_step_does_not_go_on(tmp_path: Path) -> None:
    run = trained(tmp_path, Intervals(at_epochs=(3,)), target=0.0, steps=10, stop_at_target=False)
    assert run.callback.meter.step == 10


class Tokens:
    """Implements InTokens: 9 batches of 4 samples, and a sample that fills none; a sample has `room` tokens."""

    num_train, num_eval, longest = 37, 0, 1

    def __init__(self, room: int) -> None:
        self.num_train_tokens = self.num_train * room


@pytest.mark.parametrize(("room", "samples"), [(1, 8), (3, 8.222)])
def test_where_a_sample_is_a_token_an_interval_in_samples_counts_whole_batches(room: int, samples: float) -> None:
    config = RunConfig(gpus=0, batch_size=4, max_epochs=2, eval_every_samples=8)
    data: Any = Tokens(room)
    plan = evaluation_times.plan_of(config, data, Batches(9), 37, Line(), evaluates=True)
    assert plan.every_steps == 2
    assert plan.every_steps * plan.samples_per_step == pytest.approx(samples, abs=1e-3)


def test_a_models_own_interval_is_left_where_there_is_nothing_to_evaluate_on() -> None:
    config = RunConfig(gpus=0, batch_size=10, max_epochs=2)
    config.model.eval_every_steps, config.model.eval_after_steps = 50, 60
    data: Any = None
    plan = evaluation_times.plan_of(config, data, Batches(STEPS), 100, Line(), evaluates=False)
    assert (plan.every_steps, plan.after_steps) == (None, 0)


@pytest.mark.parametrize(
    "asked", [{"eval_every_steps": 50}, {"eval_every_samples": 9}, {"eval_at_epochs": [1]}, {"eval_after_steps": 3}]
)
def test_an_interval_without_anything_to_evaluate_on_is_refused(asked: dict[str, Any]) -> None:
    nothing: Any = None
    with pytest.raises(ConfigError, match=r"has nothing to evaluate on.*eval_every_steps"):
        evaluation_times.plan_of(RunConfig(gpus=0, **asked), nothing, nothing, 100, nothing, evaluates=False)
