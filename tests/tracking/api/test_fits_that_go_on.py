"""A fit that goes on from an earlier one, or from a checkpoint: its epochs are its own, as its clock is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint

from tests.support.commands import HANGS_SEC
from tests.tracking.api import own_script
from tests.tracking.api.own_script import NUM_TRAIN
from tracking.analysis.audit.audit import audit
from tracking.analysis.report import report
from tracking.analysis.results import UNCOUNTED_TAG
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.api.script_process import THIS_PROCESS
from tracking.lightning import TimeTrial
from tracking.record import documents, journal, run_folder

# Lightning's warnings to users are not under test.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def callback(tmp_path: Path, metric: str = "val_loss") -> TimeTrial:
    return TimeTrial(
        {metric: "<=1e9"}, runs_dir=str(tmp_path / "runs"), offline=True, stop_at_target=False,
        system_metrics_interval_sec=0,
    )  # fmt: skip


def second_run(tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any], list[int]]:
    """The result and the tags of the second run, and how many samples each of its epochs had."""
    _, folder = sorted((tmp_path / "runs").glob("2*"))
    records = [record for record, _ in journal.read(folder / run_folder.JOURNAL)]
    tags = {key: value for record in records if record.kind == "tags" for key, value in record.values.items()}
    samples = [event.values["samples"] for event in journal.events(folder / run_folder.JOURNAL)
               if event.key == "epoch_stop"]  # fmt: skip
    for companion in THIS_PROCESS.companions:
        companion.wait(HANGS_SEC)  # It adds what limited a run, which the audit would find and the report not.
    store = FolderRuns([tmp_path / "runs"])
    made = report.make(store, ["timetrial"], store.find(["timetrial"]), ["model"])
    assert audit(made.plain(), [tmp_path / "runs"]).differences == []
    return documents.read_json(folder / run_folder.RESULT), tags, samples


def test_a_trainer_that_is_given_more_epochs(tmp_path: Path) -> None:
    trainer, module = own_script.trainer(callback(tmp_path), max_epochs=3), own_script.Line()
    trainer.fit(module, *own_script.loaders())
    trainer.fit_loop.max_epochs = 5
    trainer.fit(module, *own_script.loaders())
    result, tags, samples = second_run(tmp_path)
    assert [row["epoch_num"] for row in result["evaluations"]] == [1, 2]
    assert (result["metrics"]["epochs/to_accuracy"], result["metrics"]["epochs/trained"]) == (1, 2)
    assert samples == [NUM_TRAIN] * 2
    assert tags["epochs"] == "of this fit alone; Lightning's own count was 3 when it began"
    assert UNCOUNTED_TAG in tags


@pytest.mark.parametrize(
    ("saved", "from_step", "validates", "trainer", "epochs", "words"),
    [
        ({}, 24, True, {}, [1, 2], "was 2 when"),
        ({"save_on_train_epoch_end": True}, 24, True, {"max_steps": 100}, [1], "was 2 when"),  # Lightning's own
        ({"every_n_train_steps": 9}, 18, True, {}, [0.5, 1.5, 2.5], "was 1 and 6 batches when"),
        ({"every_n_train_steps": 9}, 18, False, {}, [0.5, 1.5, 2.5], "was 1 and 6 batches when"),
        ({}, 12, True, {"val_check_interval": 0.5}, [0.5, 1, 1.5, 2, 2.5, 3], "was 1 when"),
    ],
    ids=["epoch's end", "epoch's end, of steps", "within an epoch", "within, not validated", "at a validation"],
)
def test_a_checkpoint(
    tmp_path: Path, saved: dict[str, Any], from_step: int, validates: bool, trainer: dict[str, Any],
    epochs: list[float], words: str,
) -> None:  # fmt: skip
    def fit(**options: Any) -> None:
        keeping = ModelCheckpoint(tmp_path / "kept", save_top_k=-1, filename="{step}", **saved)
        fitting = own_script.trainer(
            callback(tmp_path, "val_loss" if validates else "train_loss"), max_epochs=4, enable_checkpointing=True,
            default_root_dir=tmp_path, **trainer,
        )  # fmt: skip
        fitting.callbacks.append(keeping)
        fitting.fit(own_script.Line(), *own_script.loaders(validates=validates), **options)

    fit()
    fit(ckpt_path=str(tmp_path / "kept" / f"step={from_step}.ckpt"))
    result, tags, samples = second_run(tmp_path)
    assert [row["epoch_num"] for row in result["evaluations"]] == epochs
    assert result["metrics"]["epochs/to_accuracy"] == epochs[0]
    assert result["metrics"]["epochs/trained"] == epochs[-1] == sum(samples) / NUM_TRAIN
    assert words in tags["epochs"]
    assert UNCOUNTED_TAG in tags


def test_what_a_stream_was_resumed_at_is_not_known(tmp_path: Path) -> None:
    keeping = ModelCheckpoint(tmp_path / "kept", save_top_k=-1, filename="{step}", every_n_train_steps=9)
    for options in ({}, {"ckpt_path": str(tmp_path / "kept" / "step=18.ckpt")}):
        trainer = own_script.trainer(
            callback(tmp_path), max_epochs=2, enable_checkpointing=True, default_root_dir=tmp_path
        )
        trainer.callbacks.append(keeping)
        trainer.fit(own_script.Line(), *own_script.loaders(streamed=100), **options)
    result, _, samples = second_run(tmp_path)
    assert samples == [100]
    assert not [key for key in result["metrics"] if key.startswith("epochs/")]


def test_another_trainer_that_goes_on_with_the_same_module_counts_from_0_and_is_no_repeat(tmp_path: Path) -> None:
    same, module = callback(tmp_path), own_script.Line()
    for _ in range(2):
        own_script.trainer(same, max_epochs=2).fit(module, *own_script.loaders())
    result, tags, _ = second_run(tmp_path)
    assert [row["epoch_num"] for row in result["evaluations"]] == [1, 2]
    assert tags[UNCOUNTED_TAG] == "goes on from an earlier fit or a checkpoint"
    assert "epochs" not in tags


@pytest.mark.parametrize("other", ["module", "callback"])
def test_another_module_and_a_callback_of_its_own_are_trainings_of_their_own(tmp_path: Path, other: str) -> None:
    modules = [own_script.Line()] * 2 if other == "callback" else [own_script.Line(), own_script.Line()]
    callbacks = [callback(tmp_path)] * 2 if other == "module" else [callback(tmp_path), callback(tmp_path)]
    for module, own in zip(modules, callbacks, strict=True):
        own_script.trainer(own, max_epochs=1).fit(module, *own_script.loaders())
    _, tags, _ = second_run(tmp_path)
    assert UNCOUNTED_TAG not in tags


def test_its_first_evaluation_may_come_before_any_step(tmp_path: Path) -> None:
    """As a callback of a user does that validates what a checkpoint left."""

    class Validates(pl.Callback):
        def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            if trainer.global_step == 0:
                trainer.fit_loop.epoch_loop.val_loop.run()
                trainer.training = True

    trainer = own_script.trainer(callback(tmp_path), max_epochs=1)
    trainer.callbacks.append(Validates())
    trainer.fit(own_script.Line(), *own_script.loaders())
    [folder] = (tmp_path / "runs").glob("2*")
    assert [row["epoch_num"] for row in documents.read_json(folder / run_folder.RESULT)["evaluations"]] == [0, 1]
