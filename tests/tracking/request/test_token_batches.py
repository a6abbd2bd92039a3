"""A language model's batch of tokens, its sequences and micro-batches: checked before a process starts."""

from __future__ import annotations

import pytest

from conf.schema import ConfigError
from tests.support.composing import composed
from tracking.request import checks

SMALL = ("model=gpt", "recipe=gpt_cpu", "gpus=0")  # 4,096 tokens a step in sequences of 64


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["micro_batch_size=1000"], "micro_batch_size=1000: is in tokens, and not a multiple of .*, such as 512"),
        (["micro_batch_size=2560"], "micro_batch_size=2560: does not divide a device's batch of 4096 .*, such as 2048"),
    ],
)
def test_micro_batches_that_make_up_no_batch_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        checks.check_run(composed([*SMALL, *(f"model.hparams.{word}" for word in words)]), [])
    suggested = said.rpartition(" ")[2]
    checks.check_run(composed([*SMALL, f"model.hparams.micro_batch_size={suggested}"]), [])


def test_a_batch_of_half_sequences_is_refused_also_with_the_default_length() -> None:
    words = [*SMALL, "dataset.sequence_length=null", "global_batch_size=2000", "model.hparams.micro_batch_size=1024"]
    with pytest.raises(ConfigError, match=r"batch_size=2000: .* not a multiple of dataset\.sequence_length=1024"):
        checks.check_run(composed(words), [])
