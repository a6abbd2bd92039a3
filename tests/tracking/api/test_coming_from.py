"""The examples of docs/coming-from.md, each as its user starts it."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from conf.schema import ConfigError
from tests.support.commands import HANGS_SEC, ROOT, environment
from tracking.analysis.results import UNCOUNTED_TAG
from tracking.api.driven import TrialSession
from tracking.record import Record, journal, run_folder

pytestmark = pytest.mark.slow
EXAMPLES = ROOT / "docs" / "examples" / "coming_from"
CLI = ("with_cli.py", "fit", "--config", str(EXAMPLES / "with_cli.yaml"))
NEEDS_OF_CLI = ("jsonargparse", "typeshed_client")
NUM_TRAIN = 1500


def ended(folder: Path, needs: tuple[str, ...], *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python with these words, at its end."""
    if lacking := [name for name in needs if importlib.util.find_spec(name) is None]:
        pytest.skip(f"needs {', '.join(lacking)}: uv sync --group frameworks")
    return subprocess.run(
        [sys.executable, *words], cwd=folder, timeout=HANGS_SEC, check=False, text=True,
        env=environment(PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1", **variables), capture_output=True,
    )  # fmt: skip


def start(folder: Path, script: str, *arguments: str, needs: tuple[str, ...] = (), **variables: str) -> list[Path]:
    """The run folders of an example that has come to its end."""
    done = ended(folder, needs, str(EXAMPLES / script), *arguments, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(path.parent for path in (folder / "runs").glob(f"*/{run_folder.RESULT}"))


@pytest.fixture
def folder(tmp_path: Path, empty_database: Path) -> Path:
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return tmp_path


def figures(run: Path) -> dict[str, float]:
    result = json.loads((run / run_folder.RESULT).read_text())
    assert result["status"] == "finished", result
    return result["metrics"]


def events(run: Path, key: str) -> list[Record]:
    return [event for event in journal.events(run / run_folder.JOURNAL) if event.key == key]


@pytest.mark.parametrize(
    ("script", "needs", "variables"),
    [
        (("plain_loop.py",), (), {}),
        pytest.param(("with_fabric.py",), ("lightning",), {}, marks=pytest.mark.exhaustive),
        pytest.param(("with_accelerate.py",), ("accelerate",), {}, marks=pytest.mark.exhaustive),
        pytest.param(("with_huggingface.py",), ("transformers", "accelerate"), {}, marks=pytest.mark.exhaustive),
        pytest.param(("with_keras.py",), ("keras",), {"KERAS_BACKEND": "torch"}, marks=pytest.mark.exhaustive),
        pytest.param(("with_keras.py",), ("keras", "jax"), {"KERAS_BACKEND": "jax"}, marks=pytest.mark.exhaustive),
        pytest.param(CLI, ("lightning", *NEEDS_OF_CLI), {}, marks=pytest.mark.exhaustive),
        pytest.param(CLI, NEEDS_OF_CLI, {"OLD_PACKAGE": "1"}, marks=pytest.mark.exhaustive),
    ],
    ids=["loop", "fabric", "accelerate", "huggingface", "keras on torch", "keras on jax", "cli", "old cli"],
)
def test_a_training_of_each_framework_is_a_run_that_reaches_its_target(
    folder: Path, script: tuple[str, ...], needs: tuple[str, ...], variables: dict[str, str]
) -> None:
    (run,) = start(folder, *script, needs=needs, **variables)
    metrics = figures(run)
    evaluated = events(run, "eval_accuracy")
    assert metrics["target_reached"] == 1
    assert metrics["epochs/to_accuracy"] == len(evaluated)
    assert {event.values["samples"] for event in events(run, "epoch_stop")} == {NUM_TRAIN}
    first, last = events(run, "run_start")[0].clock_sec, evaluated[-1].clock_sec
    assert metrics["time/to_accuracy_sec"] == pytest.approx(last - first)
    assert metrics["throughput/samples_per_sec"] > 0


@pytest.mark.exhaustive  # test_lightning_script.py has runs of two processes
def test_two_processes_of_accelerate_are_one_run(folder: Path) -> None:
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(EXAMPLES / "with_accelerate.py"))
    done = ended(folder, ("accelerate",), *words, ACCELERATE_USE_CPU="true")
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (path.parent for path in (folder / "runs").glob(f"*/{run_folder.RESULT}"))
    assert figures(run)["world_size"] == 2
    assert {event.values["samples"] for event in events(run, "epoch_stop")} == {NUM_TRAIN}


@pytest.mark.exhaustive
def test_each_fold_is_a_run(folder: Path) -> None:
    runs = start(folder, "k_folds.py")
    assert len(runs) == 5
    assert all(figures(run)["target_reached"] == 1 for run in runs)


@pytest.mark.exhaustive
def test_each_trial_of_optuna_is_a_run(folder: Path) -> None:
    assert len(start(folder, "with_optuna.py", needs=("optuna",))) == 4


def test_a_target_without_a_metrics_name_is_refused_by_name() -> None:
    pytest.importorskip("transformers", reason="needs transformers: uv sync --group frameworks")
    from timetrial import HuggingFaceTimeTrial

    with pytest.raises(ConfigError, match=r"target=0.9: not targets. Allowed: a dict such as \{'val_acc': 0.9\}"):
        HuggingFaceTimeTrial(0.9)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="stop_at_target='no': must be True or False"):
        HuggingFaceTimeTrial(stop_at_target="no")  # type: ignore[arg-type]


def test_a_target_that_trainer_will_not_evaluate_is_told_of_as_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers: uv sync --group frameworks")
    from timetrial import HuggingFaceTimeTrial

    trial = HuggingFaceTimeTrial({"accuracy": 0.9}, runs_dir=str(tmp_path), offline=True)
    arguments = transformers.TrainingArguments(str(tmp_path / "out"), use_cpu=True, report_to="none")
    state, model = transformers.TrainerState(), torch.nn.Linear(2, 2)
    trial.on_train_begin(arguments, state, transformers.TrainerControl(), model=model)
    trial.on_train_end(arguments, state, transformers.TrainerControl())
    assert (
        "target=accuracy: is never evaluated. Next: set TrainingArguments(eval_strategy='epoch')"
        in capsys.readouterr().out
    )


def tags_and_epochs(runs: Path) -> list[tuple[str | None, str | None, list[float]]]:
    """Why each run is not counted, what it says of its epochs, and those at its evaluations."""
    notes = []
    for run in sorted(runs.iterdir()):
        rows = [record for record, _ in journal.read(run / run_folder.JOURNAL)]
        tags = {key: value for row in rows if row.kind == "tags" for key, value in row.values.items()}
        epochs = [event.values["epoch_num"] for event in events(run, "eval_accuracy")]
        notes.append((tags.get(UNCOUNTED_TAG), tags.get("epochs"), epochs))
    return notes


CONTINUED, COUNT = "goes on from an earlier fit or a checkpoint", "the framework's own count was"


def test_a_session_notes_a_model_that_it_trained_before_as_continued(tmp_path: Path) -> None:
    session = TrialSession(runs_dir=str(tmp_path), offline=True, device="cpu")
    first, second = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    for model, num_steps in ((first, 0), (first, 1), (second, 1), (first, 1)):  # without a step nothing was trained
        trial = session.begin(model)
        for _ in range(num_steps):
            trial.step(8)
        session.end()
    assert [uncounted for uncounted, _, _ in tags_and_epochs(tmp_path)] == [None, None, None, CONTINUED]


def test_a_huggingface_training_from_a_checkpoint_is_not_counted(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers: uv sync --group frameworks")
    from timetrial import HuggingFaceTimeTrial

    trial = HuggingFaceTimeTrial(runs_dir=str(tmp_path / "runs"), offline=True)
    arguments = transformers.TrainingArguments(str(tmp_path / "out"), use_cpu=True, report_to="none")
    state, control = transformers.TrainerState(global_step=30, epoch=1.5), transformers.TrainerControl()
    trial.on_train_begin(arguments, state, control, model=torch.nn.Linear(2, 2))
    trial.on_step_end(arguments, state, control)
    state.epoch = 2.0
    trial.on_evaluate(arguments, state, control, metrics={"eval_accuracy": 0.5})
    trial.on_train_end(arguments, state, control)
    [notes] = tags_and_epochs(tmp_path / "runs")
    assert notes == (CONTINUED, f"of this fit alone; {COUNT} 1.5 when it began", [0.5])


class Callback:
    """What Keras's own keeps of what it is given."""

    def set_params(self, params: dict[str, int]) -> None:
        self.params = params

    def set_model(self, model: torch.nn.Module) -> None:
        self.model = model


@pytest.fixture
def keras_trial(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """KerasTimeTrial on a stand-in, since importing Keras takes a minute; with_keras.py trains with Keras itself."""
    fake = SimpleNamespace(
        callbacks=SimpleNamespace(Callback=Callback), backend=SimpleNamespace(backend=lambda: "torch"),
        config=SimpleNamespace(dtype_policy=lambda: SimpleNamespace(name="float32")),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "keras", fake)
    own = sys.modules.pop("tracking.api.keras", None)
    yield importlib.import_module("tracking.api.keras").KerasTimeTrial
    sys.modules.pop("tracking.api.keras")
    sys.modules.update({} if own is None else {"tracking.api.keras": own})


def test_a_keras_fit_from_a_later_epoch_on_is_not_counted(tmp_path: Path, keras_trial: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="stop_at_target='no': must be True or False"):
        keras_trial(stop_at_target="no")
    trial = keras_trial(runs_dir=str(tmp_path), offline=True, device="cpu")
    for first in (0, 2):
        trial.set_model(torch.nn.Linear(2, 2))
        trial.set_params({"epochs": first + 2})
        trial.on_train_begin()
        for epoch in (first, first + 1):
            trial.on_epoch_begin(epoch)
            trial.on_train_batch_end(0)
            trial.on_epoch_end(epoch, {"val_accuracy": 0.5})
        trial.on_train_end()
    assert tags_and_epochs(tmp_path) == [
        (None, None, [1, 2]),
        (CONTINUED, f"of this fit alone; {COUNT} 2 when it began", [1, 2]),
    ]


@pytest.mark.parametrize(
    ("params", "options", "samples"),
    [
        ({}, {}, 16 * 12),
        ({"steps": 10}, {}, 16 * 10),
        ({"steps": 10}, {"num_samples": 150}, 150),
        ({}, {"num_samples": 150}, 150),
    ],
)
def test_a_keras_step_has_the_samples_of_all_its_batches(
    params: dict[str, int], options: dict[str, int], samples: int, tmp_path: Path, keras_trial: Callable[..., Any]
) -> None:
    trial = keras_trial(batch_size=16, runs_dir=str(tmp_path), offline=True, device="cpu", **options)
    model = torch.nn.Linear(2, 2)
    model.steps_per_execution = 4  # type: ignore[assignment]
    trial.set_model(model)
    trial.set_params(params)
    trial.on_train_begin()
    for epoch in range(2):
        trial.on_epoch_begin(epoch)
        for batch in (3, 7, 11):  # Keras gives the last batch of each execution.
            trial.on_train_batch_end(batch)
        trial.on_epoch_end(epoch, {"val_accuracy": 0.5})
    trial.on_train_end()
    [run] = tmp_path.iterdir()
    assert [event.values["samples"] for event in events(run, "epoch_stop")] == [samples] * 2


@pytest.mark.exhaustive
def test_a_huggingface_script_that_raises_is_a_failed_run(folder: Path) -> None:
    """No callback hears of it, so the script's end tells."""
    source = (EXAMPLES / "with_huggingface.py").read_text()
    broken = source.replace("        logits =", "        assert len(pixels) == 50, 'a short batch'\n        logits =")
    (folder / "broken.py").write_text(broken)
    done = ended(folder, ("transformers",), "broken.py")
    assert done.returncode == 1
    assert "AssertionError: a short batch" in done.stderr
    (path,) = (folder / "runs").glob(f"*/{run_folder.RESULT}")
    failure = json.loads(path.read_text())["failure"]
    assert (failure["kind"], failure["message"]) == ("error", "AssertionError: a short batch")
