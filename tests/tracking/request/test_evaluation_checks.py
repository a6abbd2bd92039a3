"""Intervals between evaluations that cannot be kept are refused before anything is imported."""

from __future__ import annotations

import pytest

from conf.evaluation import Intervals, remove_unset
from conf.schema import ConfigError, RunConfig
from tests.support.composing import composed
from tracking.request import checks
from tracking.request.evaluation_checks import check_evaluation


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ("eval_every_steps=0", "eval_every_steps=0: must be above 0"),
        ("eval_every_samples=-5", "eval_every_samples=-5: must be above 0"),
        ("eval_after_steps=0", "eval_after_steps=0: must be above 0"),
        ("eval_every_steps=50 eval_every_samples=9", "and eval_every_samples=9: exclude each other"),
        ("eval_every_steps=50 eval_at_epochs=[1]", r"eval_every_steps=50 and eval_at_epochs=\[1\]: exclude each other"),
        ("eval_at_epochs=[3,2]", r"eval_at_epochs=\[3, 2\]: .* Allowed: epochs from 1 on, each once, in order"),
        ("eval_at_epochs=[0,2]", "from 1 on"),
        ("eval_at_epochs=[2,2]", "each once"),
        ("eval_at_epochs=[2,9] max_epochs=8", "the training ends after epoch 8. Next: give epochs up to 8"),
        ("eval_at_epochs=[2] eval_after_steps=9", r"eval_after_steps=9: has no effect with eval_at_epochs=\[2\]"),
        ("eval_every_steps=70", "such as eval_every_steps=50, or log_every_n_steps=70"),
        ("eval_every_steps=20", "such as eval_every_steps=50, or log_every_n_steps=20"),
        ("eval_every_steps=100 limit_train_batches=60", "limit_train_batches=60: is smaller than eval_every_steps=100"),
        ("eval_after_steps=9 limit_train_batches=4 max_epochs=2", "eval_after_steps=9: the training has 8 steps"),
        ("model.eval_every_steps=7", "eval_every_steps=7: not a multiple of log_every_n_steps"),
        ("model=program program.command=x eval_every_steps=50", "eval_every_steps: has no effect on a program"),
        ("checkpoint_every_steps=0", "checkpoint_every_steps=0: must be above 0"),
        ("checkpoint_every_steps=-5", "checkpoint_every_steps=-5: must be above 0"),
        ("model=program program.command=x checkpoint_every_steps=5", "checkpoint_every_steps"),
    ],
)
def test_it_is_refused_with_what_would_do(overrides: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        checks.check_run(composed(overrides.split()), [])


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ("", Intervals()),
        ("model.eval_every_steps=50", Intervals(every_steps=50)),
        ("model.eval_every_steps=50 eval_every_samples=64", Intervals(every_samples=64)),
        ("model.eval_every_steps=50 model.eval_after_steps=9 eval_at_epochs=[2]", Intervals(at_epochs=(2,))),
        ("model.eval_every_steps=50 eval_after_steps=9", Intervals(every_steps=50, after_steps=9)),
        ("model.eval_every_steps=50 model.eval_after_steps=9", Intervals(every_steps=50, after_steps=9)),
    ],
)
def test_the_run_is_asked_before_its_model(overrides: str, expected: Intervals) -> None:
    config = composed(overrides.split())
    check_evaluation(config)
    assert config.evaluated() == expected


def test_a_run_that_asks_for_nothing_has_the_hash_that_it_had_before_there_were_intervals() -> None:
    content = {"seed": 1, "eval_every_steps": None, "eval_every_samples": None, "eval_at_epochs": []}
    content["eval_after_steps"] = None
    remove_unset(content)
    assert content == {"seed": 1}
    assert RunConfig(eval_every_steps=50).config_hash() != RunConfig().config_hash()
    assert RunConfig(eval_at_epochs=[2]).config_hash() != RunConfig().config_hash()
