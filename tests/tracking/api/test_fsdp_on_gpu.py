"""Lightning's FSDPStrategy, which wants GPUs, is one run of two processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.tracking.api.own_script import BATCH, NUM_TRAIN
from tests.tracking.api.test_lightning_script import events, finished, merged, only_run, result_of, start

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs")]


def test_sharded_parameters_are_one_run_of_two_gpus(tmp_path: Path) -> None:
    finished(start(tmp_path, {"offline": True}, {"accelerator": "gpu", "devices": 2, "strategy": "fsdp"}))
    folder = only_run(tmp_path)
    result, params, seen = result_of(folder), merged(folder, "params"), merged(folder, "tags")
    assert result["status"] == "finished"
    assert result["metrics"]["world_size"] == 2
    assert len(result["evaluations"]) == 3
    assert [row.values["samples"] for row in events(folder) if row.key == "epoch_stop"] == [NUM_TRAIN] * 3
    windows = [row for row in events(folder) if row.key == "throughput_window"]
    assert {len(row.values["rank_ms"]) for row in windows} == {2}
    assert (params["strategy"], params["gpus"], params["global_batch_size"]) == ("FSDPStrategy", 2, 2 * BATCH)
    assert seen["env.gpu_count"] == "2"
    assert seen["env.gpu"] == torch.cuda.get_device_name(0)
