"""Metrics and params with names that MLflow refuses: all are kept, and a message gives their new names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tracking.api import own_script
from tests.tracking.api.own_script import BATCH, Line
from tracking.api.script_arguments import MetricNames
from tracking.lightning import TimeTrial, time_trial
from tracking.record import documents, journal, run_folder
from tracking.store.mirror.log_batches import log_batches


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("val_acc", "val_acc"),
        ("val/mAP@0.5", "val/mAP_0.5"),
        ("acc(%)", "acc_"),
        ("loss [nats] é", "loss _nats_ é"),
        ("/a//b/./../c/", "a/b/_/_/c"),
        ("%", "_"),
        ("x" * 300, "x" * 250),
    ],
)
def test_a_name_becomes_the_key_nearest_to_it(text: str, key: str) -> None:
    assert journal.as_key(text) == key


@given(st.lists(st.text(min_size=1), unique=True))
def test_every_name_has_a_key_of_its_own_that_mlflow_takes(texts: list[str]) -> None:
    keys = MetricNames().with_keys(dict.fromkeys(texts, 1.0))
    assert len(keys) == len(texts)
    assert all(journal.is_key(f"eval/best_{key}") for key in keys)


def test_a_name_that_is_a_key_stays_so_beside_one_that_would_become_it() -> None:
    keyed = MetricNames().with_keys({"acc(%)": 93, "acc_": 7})
    assert keyed.pop("acc_") == 7
    ((key, value),) = keyed.items()
    assert (key[:5], len(key), value) == ("acc__", 9, 93)


def values(folder: Path, kind: str) -> dict[str, object]:
    rows = [record.values for record, _ in journal.read(folder / run_folder.JOURNAL) if record.kind == kind]
    return {key: value for row in rows for key, value in row.items()}


class Detector(Line):
    def validation_step(self, batch: object, batch_idx: int) -> None:
        self.log("val/mAP@0.5", 0.4)
        self.log("acc(%)", 93.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_a_callback_loses_no_metric_and_says_once_what_it_is_called(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trial = TimeTrial(
        {"val/mAP@0.5": 0.3}, runs_dir=str(tmp_path), offline=True, stop_at_target=False, system_metrics_interval_sec=0
    )
    own_script.trainer(trial, max_epochs=2).fit(Detector(), *own_script.loaders())
    (folder,) = tmp_path.glob("2*")
    metrics = documents.read_json(folder / run_folder.RESULT)["metrics"]
    assert (metrics["target_reached"], metrics["eval/best_val/mAP_0.5"]) == (1, 0.4)
    assert values(folder, "metrics")["eval/acc_"] == 93
    assert values(folder, "tags")["metric_names"] == "val/mAP_0.5 is val/mAP@0.5; acc_ is acc(%)"
    assert capfd.readouterr().out.count("'acc(%)' is called 'acc_'") == 1
    assert not [words for batch in log_batches(folder / run_folder.JOURNAL, 0) for words in batch.refused]


@pytest.mark.slow
def test_a_loop_loses_neither_metric_nor_param(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with time_trial(
        {"acc(%)": 90}, runs_dir=str(tmp_path), offline=True, device="cpu", system_metrics_interval_sec=0,
        params={"lr@start": 0.1},
    ) as trial:  # fmt: skip
        trial.step(BATCH)
        assert trial.evaluate({"acc(%)": 93}, epoch=1)
    (folder,) = tmp_path.glob("2*")
    assert documents.read_json(folder / run_folder.RESULT)["metrics"]["eval/best_acc_"] == 93
    assert values(folder, "params")["lr_start"] == 0.1
    assert values(folder, "tags")["param_names"] == "lr_start is lr@start"
    assert "'lr@start' is called 'lr_start'" in capfd.readouterr().out
    assert not [words for batch in log_batches(folder / run_folder.JOURNAL, 0) for words in batch.refused]
