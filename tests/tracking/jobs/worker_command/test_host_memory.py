"""A language model that this machine cannot hold is refused before a run on CPUs makes it."""

from __future__ import annotations

import pytest

from conf.schema import ConfigError, RunConfig
from tests.support.composing import EIGHT_GPUS, composed
from tracking.jobs.worker_command import check_workload, workload_module
from tracking.request import checks

MODEL = ("model=llama", "recipe=llama_1b", "dataset=synthetic", "precision=bf16")
PARAMETERS = 1_498_482_688


def checked(*words: str) -> RunConfig:
    return checks.check_run(composed([*MODEL, *words]), EIGHT_GPUS)


@pytest.mark.parametrize(("processes", "strategy", "copies"), [(1, "ddp", 1), (2, "ddp", 2), (2, "fsdp", 1)])
def test_weights_gradients_and_state_must_fit_into_the_free_memory(
    monkeypatch: pytest.MonkeyPatch, processes: int, strategy: str, copies: int
) -> None:
    config = checked("gpus=0", f"cpu_processes={processes}", f"strategy={strategy}")
    least = copies * 3 * 4 * PARAMETERS  # of a weight at least itself, its gradient and a momentum, in float32
    monkeypatch.setattr(workload_module, "available_bytes", lambda: least)
    with pytest.raises(ConfigError, match=r"^model=llama: its weights, gradients and optimizer state take .* GB free"):
        check_workload(config)
    monkeypatch.setattr(workload_module, "available_bytes", lambda: least * 4 // 3)
    check_workload(config)


@pytest.mark.parametrize("words", [("gpus=1",), ("gpus=0", "cluster=slurm")])
def test_the_memory_of_other_machines_and_of_gpus_is_not_this_ones(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(workload_module, "available_bytes", lambda: 0)
    check_workload(checked(*words))
