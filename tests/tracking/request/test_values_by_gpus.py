"""A recipe's batch size and learning rate for a number of GPUs hold unless one of them is given."""

from __future__ import annotations

import pytest

from conf.schema import ConfigError, RunConfig
from tests.support.composing import EIGHT_GPUS, composed, jobs
from tracking.request import batch_checks, checks
from tracking.request.command_line.arguments import hydra_argument

TABLE = "model.by_gpus={2:{batch_size:16,lr:0.02},4:{batch_size:8}}"


def checked(*words: str) -> RunConfig:
    arguments = [hydra_argument(word) for word in words]
    return checks.check_job(composed(arguments), arguments, [], EIGHT_GPUS)


@pytest.mark.parametrize(
    ("words", "batch_size", "rate"),
    [
        (["gpus=1"], 64, 0.001),
        (["gpus=2"], 16, 0.02),
        (["gpus=3"], 16, 0.02),
        (["gpus=8"], 8, 0.001),
        (["gpus=2", "model.optimizer.weight_decay=0.1"], 16, 0.02),
        (["gpus=2", "batch_size=null"], 16, 0.02),
        (["gpus=2", "batch_size=64"], 64, 0.001),
        (["gpus=2", "global_batch_size=64"], 32, 0.001),
        (["gpus=2", "model.batch_size=48"], 48, 0.001),
        (["gpus=2", "model.optimizer.lr=0.005"], 64, 0.005),
        (["gpus=2", "model.optimizer={lr:0.005}"], 64, 0.005),
        (["gpus=2", "++model={batch_size:48}"], 48, 0.001),
        (["gpus=2", "model.optimizer.lr_scaling=none"], 64, 0.001),
        (["gpus=2", "study.batch_factor=2"], 128, 0.001),
        (["gpus=2", "nodes=2", "cluster=slurm"], 64, 0.001),
        (["gpus=0", "cpu_processes=3"], 64, 0.001),
    ],
)
def test_a_row_holds_unless_one_of_its_values_is_given(words: list[str], batch_size: int, rate: float) -> None:
    config = checked(*words, TABLE)
    assert (config.device_batch_size(), config.model.optimizer.lr) == (batch_size, rate)
    assert checks.check_run(config, EIGHT_GPUS) == config, "a run that goes on keeps them"


def test_a_run_with_a_row_is_one_with_its_values_typed() -> None:
    typed = checked("gpus=2", "model.batch_size=16", "model.optimizer.lr=0.02")
    assert checked("gpus=2", TABLE).config_hash() == typed.config_hash()


def test_an_empty_table_uses_no_row() -> None:
    asked = ["model=resnet50", "dataset=shapes", "gpus=4"]
    assert checked(*asked).device_batch_size() == 32
    assert checked(*asked, "model.by_gpus={}").device_batch_size() == 128


@pytest.mark.parametrize("study", ["scaling", "topology"])
def test_a_study_has_one_batch_and_one_rate_over_gpus(study: str) -> None:
    words = [f"+study={study}", "model=resnet50", "seed=1", "gpus=1,2,4,8"]
    configs = [checks.check_job(composed(job), job, [], EIGHT_GPUS) for job in jobs(words)]
    assert {config.num_gpus() for config in configs} >= {1, 4, 8}
    assert {(config.device_batch_size(), config.model.optimizer.lr) for config in configs} == {(128, 0.05)}


def test_the_launcher_says_once_which_row_it_took() -> None:
    before = [composed([hydra_argument(word) for word in (TABLE, f"gpus={gpus}")]) for gpus in (1, 2, 2)]
    after = [checks.check_run(config, EIGHT_GPUS, []) for config in before]
    assert batch_checks.notes_on_gpus(before, after) == [
        "vgg on 2 GPUs: batch_size=16 model.optimizer.lr=0.02, from model.by_gpus"
    ]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("{0:{lr:1}}", "model.by_gpus.0: not a number of GPUs"),
        ("{2:8}", "model.by_gpus.2=8: not values for these GPUs. Allowed: batch_size, lr"),
        ("{2:{batch:8}}", "Allowed: batch_size, lr"),
        ("{2:{batch_size:0.5}}", "model.by_gpus.2.batch_size=0.5: must be a whole number above 0"),
        ("{2:{lr:-1}}", "model.by_gpus.2.lr=-1: must be a number above 0"),
    ],
)
def test_wrong_tables_are_refused(table: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        checked("gpus=1", f"model.by_gpus={table}")
