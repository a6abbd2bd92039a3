"""Lightning's strategy for DeepSpeed, where that is installed: one run, whatever is divided between its processes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tracking.api.own_script import BATCH, NUM_TRAIN
from tests.tracking.api.test_lightning_script import events, finished, merged, only_run, result_of, start

pytestmark = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs deepspeed")


def params_of_a_run_of(folder: Path, num_processes: int) -> dict[str, Any]:
    result, params = result_of(folder), merged(folder, "params")
    assert result["status"] == "finished"
    assert result["metrics"]["world_size"] == num_processes
    assert [row["epoch_num"] for row in result["evaluations"]] == [1, 2, 3]
    assert [row.values["samples"] for row in events(folder) if row.key == "epoch_stop"] == [NUM_TRAIN] * 3
    assert params["global_batch_size"] == num_processes * BATCH
    assert (params["optimizer/name"], params["optimizer/learning_rate"]) == ("sgd", 0.3)
    return params


@pytest.mark.slow
@pytest.mark.parametrize("num_processes", [1, 2])
def test_its_own_cpu_accelerator(tmp_path: Path, num_processes: int) -> None:
    finished(start(tmp_path, {"offline": True}, {"devices": num_processes}, deepspeed=2))
    params_of_a_run_of(only_run(tmp_path), num_processes)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_gpus(tmp_path: Path) -> None:
    num = min(2, torch.cuda.device_count())
    options = {"accelerator": "gpu", "devices": num, "strategy": "deepspeed_stage_1"}
    finished(start(tmp_path, {"offline": True}, options))
    assert params_of_a_run_of(only_run(tmp_path), num)["strategy"] == "DeepSpeedStrategy"
