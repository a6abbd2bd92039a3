"""What is advised to a run that does not fit into the GPUs' memory would fit, and be accepted."""

from __future__ import annotations

import pytest

from conf.schema import ConfigError
from tests.support.composing import composed
from tracking.machine.environment.nvml import Gpu
from tracking.request import checks, strategy_checks

OPTIONS = ["dataset=synthetic", "gpus=4"]
LLAMA = ["model=llama", "recipe=llama_8b", *OPTIONS]


def gpus(gigabytes: int) -> list[Gpu]:
    return [Gpu(index, "NVIDIA H100 80GB HBM3", f"GPU-{index}", gigabytes * 10**9, 9.0) for index in range(4)]


def test_a_twentieth_of_a_gpus_memory_is_not_usable() -> None:
    config = composed([*LLAMA, "precision=bf16", "strategy=fsdp"])  # takes 37.6 GB
    checks.check_run(config, gpus(40))
    words = r"takes 37\.6 GB .* of a GPU here 37\.0 GB are usable \(95 % of its memory\)\. Next: "
    with pytest.raises(ConfigError, match=words):
        checks.check_run(config, gpus(39))


@pytest.mark.parametrize("option", ["precision=fp16", "overlap_grad_reduce=true"])
def test_a_strategy_that_would_be_refused_is_not_advised(option: str) -> None:
    words = f"sequences, or leave out {option}: strategy=fsdp, which shards, does not support it$"
    with pytest.raises(ConfigError, match=words):
        checks.check_run(composed([*LLAMA, option]), gpus(85))
    fits = checks.check_run(composed(["model=gpt", "recipe=gpt_124m", *OPTIONS, option]), gpus(85))
    assert strategy_checks.memory_words(fits).endswith(" by strategy=ddp")
