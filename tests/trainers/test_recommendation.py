"""NCF from the command line to its hit rate, over two processes, on generated ratings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Launched, events, launch
from tests.support.composing import EIGHT_GPUS, composed, jobs

NUM_TRAIN, USERS = 2000, 14
SMALL = ("gpus=0", "tracking.offline=true", "tracking.system_metrics_interval_sec=0")


@pytest.fixture(scope="module")
def recommender(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder = tmp_path_factory.mktemp("ncf")
    return launch(
        folder, "model=ncf", "recipe=ncf_cpu", f"dataset.size={NUM_TRAIN}", "batch_size=1500", "max_epochs=2",
        "cpu_processes=2", *SMALL,
        TIMETRIAL_CACHE=str(folder / "cache"),
    )  # fmt: skip


@pytest.mark.slow
def test_it_trains_and_evaluates_on_two_processes(recommender: Launched) -> None:
    assert recommender.code == 0, recommender.output
    metrics = recommender.result["metrics"]
    assert metrics["world_size"] == 2
    assert metrics["time/index_sec"] > 0
    assert recommender.result["unit"] == "samples"
    assert [evaluation["metrics"].keys() for evaluation in recommender.result["evaluations"]] == [
        {"hit_rate_10", "ndcg_10"}
    ] * 2


@pytest.mark.slow
def test_samples_are_positives_and_negatives(recommender: Launched) -> None:
    epochs = events(recommender.folder, "epoch_stop")
    assert [epoch.values["samples"] for epoch in epochs] == [5 * NUM_TRAIN] * 2
    counted = [events(recommender.folder, key)[0].value for key in ("train_samples", "eval_samples")]
    assert counted == [5 * NUM_TRAIN, USERS]


@pytest.mark.slow
def test_a_rating_that_is_none_is_refused_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "u.data").write_text("1\t2\t5\t100\n1\tthree\t5\t100\n")
    refused = launch(tmp_path, "model=ncf", "dataset=movielens", f"dataset.path={tmp_path}", *SMALL)
    assert refused.code == 2
    assert refused.result["failure"]["kind"] == "bad_input"
    assert "u.data:2: " in refused.result["failure"]["message"]


def test_the_studies_of_every_model_include_it() -> None:
    for study, number in (("scaling", 9), ("precision", 12)):
        asked = jobs([f"+study={study}", "model=ncf"])
        configs = [composed(overrides) for overrides in asked]
        assert {config.model.name for config in configs} == {"ncf"}
        assert len(configs) == number
        assert len(EIGHT_GPUS) >= max(int(config.gpus) for config in configs)
