"""What is advised to a run that does not fit into the GPUs' memory would be accepted; fp8 has a note at small sizes."""

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
    words = r"takes 37\.6 GB .* but a GPU here has only 37\.0 GB usable \(95 % of its memory\)\. Next: "
    with pytest.raises(ConfigError, match=words):
        checks.check_run(config, gpus(39))


@pytest.mark.parametrize("option", ["precision=fp16", "overlap_grad_reduce=true"])
def test_a_strategy_that_would_be_refused_is_not_advised(option: str) -> None:
    words = f"sequences, or leave out {option}: strategy=fsdp, which shards, does not support it$"
    with pytest.raises(ConfigError, match=words):
        checks.check_run(composed([*LLAMA, option]), gpus(85))
    fits = checks.check_run(composed(["model=gpt", "recipe=gpt_124m", *OPTIONS, option]), gpus(85))
    assert strategy_checks.memory_words(fits).endswith(" by strategy=ddp")


@pytest.mark.parametrize(
    ("model", "precisions", "expected"),
    [
        (["model=gpt", "recipe=gpt_124m"], ["fp8", "fp8"], "768 and 1,600"),
        (["model=gpt", "recipe=gpt_124m"], ["bf16", "fp8"], ""),
        (["model=gpt", "recipe=gpt_124m"], ["bf16"], ""),
        (["model=gpt", "recipe=gpt_1.5b"], ["fp8"], ""),
        (["model=gpt", "recipe=gpt_1.5b", "compile=false"], ["fp8"], "1,600 and 4,096"),
        (["model=gpt", "recipe=gpt_1.5b", "gpus=2", "strategy=fsdp"], ["fp8"], "1,600 and 4,096"),
        (
            ["model=gpt", "recipe=gpt_1.5b", f"model.hparams.{strategy_checks.CHECKPOINTING}=true"],
            ["fp8"],
            "1,600 and 4,096",
        ),
        (["model=llama", "recipe=llama_8b"], ["fp8"], ""),
        (["model=vgg"], ["fp32"], ""),
    ],
)
def test_fp8_that_may_be_slower_has_a_note(model: list[str], precisions: list[str], expected: str) -> None:
    notes = strategy_checks.notes_on_fp8([composed(["gpus=1", *model, f"precision={name}"]) for name in precisions])
    width, _, least = expected.partition(" and ")
    assert notes == bool(expected) * [
        f"precision=fp8: may be slower than bf16 for model=gpt with layers {width} wide. It was measured to be faster"
        f" only with layers at least {least} wide. Next: give precision=bf16, or compare the two:"
        " -m precision=bf16,fp8"
    ]
