"""Real runs of the benchmarks, tiny ones on drawn images, whose logs MLPerf's own compliance checker reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Launched, launch
from tests.support.composing import EIGHT_GPUS, composed
from tests.support.mlperf_checker import complaints
from tracking.analysis import mlperf
from tracking.jobs.plan.repair import repair
from tracking.record import journal, run_folder
from tracking.request import checks

pytestmark = pytest.mark.slow

SMALL = (
    "dataset.size=12", "gpus=0", "batch_size=4", "max_epochs=1", "limit_train_batches=2",
    "tracking.system_metrics_interval_sec=0", "tracking.offline=true",
)  # fmt: skip
RUNS = {
    "resnet50": ("model.hparams.depth=18", "model.hparams.image_size=32", "model.hparams.eval_resize=32"),
    "ssd": (),
    "maskrcnn": ("model.hparams.min_size=64", "model.hparams.max_size=96", "model.hparams.num_proposals=4"),
}
CLOSED = ("dataset.path=/data", "gpus=2", "target_set=mlperf_v07")  # 16 images a step for Mask R-CNN
DATASETS = {"resnet50": "imagenet", "ssd": "coco", "maskrcnn": "coco"}
# Its run evaluates for a quarter of a minute, as another detector's does; its lines are checked below.
TRAINED = ["resnet50", "ssd", pytest.param("maskrcnn", marks=pytest.mark.exhaustive)]
Line = dict[str, Any]


class Runs(dict[str, Launched]):
    """A run of each benchmark that is asked for, with as small a network as its recipe for a CPU has."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, model: str) -> Launched:
        (cwd := self._folder / model).mkdir()
        words = (f"model={model}", f"recipe={model}_cpu", *SMALL, *RUNS[model])
        self[model] = launch(cwd, *words, TIMETRIAL_CACHE=str(cwd / "cache"))
        assert self[model].code == 0, self[model].output
        return self[model]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def closed(run: Launched, model: str, dataset: str = "", metrics: Mapping[str, float] | None = None) -> str:
    """The log of a run as one of the closed division would have it: the run's events, with that one's options.

    With `metrics` the run may be another benchmark's, which evaluated to these.
    """
    asked = composed([f"model={model}", f"dataset={dataset or DATASETS[model]}", *CLOSED])
    events = list(journal.events(run.folder / run_folder.JOURNAL))
    if metrics:
        events = [
            replace(event, values={**event.values, "metrics": {**metrics}}) if event.key == "eval_accuracy" else event
            for event in events
        ]
    return "\n".join(mlperf.lines(checks.check_run(asked, EIGHT_GPUS), events, {}))


def content(text: str) -> list[Line]:
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in text.splitlines()]


def written(path: Path, lines: Sequence[Line]) -> Path:
    path.write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))
    return path


@pytest.mark.parametrize("model", TRAINED)
def test_the_checker_misses_the_threshold_alone(runs: Runs, model: str, tmp_path: Path) -> None:
    log = runs[model].folder / mlperf.LOG
    assert '"submission_division", "value": "open"' in log.read_text()
    (complaint,) = complaints(log)
    assert complaint.startswith("Failed checks for eval_accuracy")
    assert complaints(written(tmp_path / "reached.log", reached(content(log.read_text())))) == []


@pytest.mark.parametrize("model", TRAINED)
def test_with_a_target_set_it_is_of_the_closed_division(runs: Runs, model: str, tmp_path: Path) -> None:
    lines = content(closed(runs[model], model))
    assert "closed" in [line["value"] for line in lines]
    assert complaints(written(tmp_path / "closed.log", reached(lines))) == []
    (complaint,) = complaints(written(tmp_path / "missed.log", lines))
    assert complaint.startswith("Failed checks for eval_accuracy")


@pytest.mark.parametrize("model", ["transformer", "gnmt"])
def test_the_checker_takes_translators_logs_with_a_fraction_of_bleu(runs: Runs, model: str, tmp_path: Path) -> None:
    """Uses the events of another run: only the options and the metric are a translator's own."""
    for bleu, failures in ((26.5, 0), (23.9, 1)):
        lines = content(closed(runs["ssd"], model, "wmt", {"bleu": bleu}))
        assert [line["value"] for line in lines if line["key"] == "eval_accuracy"] == [bleu / 100]
        assert len(complaints(written(tmp_path / "translator.log", lines))) == failures


def reached(lines: Sequence[Line]) -> list[Line]:
    """The lines with accuracies that are above all thresholds."""
    value = {"BBOX": 0.4, "SEGM": 0.4} if '"BBOX"' in json.dumps(lines) else 0.8
    return [line | {"value": value} if line["key"] == "eval_accuracy" else line for line in lines]


def without(key: str) -> Callable[[list[Line]], list[Line]]:
    return lambda lines: [line for line in lines if line["key"] != key]


def doubled(lines: list[Line]) -> list[Line]:
    return [copy for line in lines for copy in ([line, line] if line["key"] == "run_start" else [line])]


def unnumbered(lines: list[Line]) -> list[Line]:
    return [line | {"metadata": {}} if line["key"] == "epoch_start" else line for line in lines]


def as_a_number(lines: list[Line]) -> list[Line]:
    return [line | {"value": 0.4} if line["key"] == "eval_accuracy" else line for line in lines]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *((without(key), key) for key in ("cache_clear", "eval_samples", "init_stop", "run_stop", "min_image_size")),
        (doubled, "EXACTLY_ONE occurrence of 'run_start'"),
        (lambda lines: lines[::-1], "init_stopped"),
        (unnumbered, "'epoch_num' in v['metadata']"),
        (as_a_number, "'BBOX' in v['value']"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_checker_sees_what_is_wrong(
    runs: Runs, change: Callable[[list[Line]], list[Line]], words: str, tmp_path: Path
) -> None:
    lines = content(closed(runs["ssd"], "maskrcnn", metrics={"box_map": 0.4, "mask_map": 0.4}))
    assert complaints(written(tmp_path / "right.log", lines)) == []
    path = written(tmp_path / "changed.log", change(lines))
    try:
        sentences = complaints(path)
    except TypeError as error:  # the checker itself fails at an accuracy that is no dictionary
        sentences = ["'BBOX' in v['value']"] if "subscriptable" in str(error) else []
    assert any(words in complaint for complaint in sentences)


def test_a_log_that_a_killed_launcher_left_unwritten_is_written_by_who_looks_after_it(runs: Runs) -> None:
    path = runs["ssd"].folder / mlperf.LOG
    log = path.read_text()
    path.unlink()
    assert not repair(path.parent)  # the run itself has its result
    assert path.read_text() == log


def test_the_times_are_those_of_the_journal(runs: Runs) -> None:
    run = runs["ssd"]
    events = {event.key: event for event in journal.events(run.folder / run_folder.JOURNAL)}
    times = {line["key"]: line["time_ms"] for line in content((run.folder / mlperf.LOG).read_text())}
    assert times["run_start"] == events["run_start"].time_ms
    for key in ("init_start", "init_stop", "eval_start", "eval_accuracy", "run_stop"):
        apart_sec = events[key].clock_sec - events["run_start"].clock_sec
        assert times[key] - times["run_start"] == pytest.approx(1000 * apart_sec, abs=1)
