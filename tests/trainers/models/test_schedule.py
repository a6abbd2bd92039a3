"""Warm-up by steps, then a tenth after each of some epochs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from conf.schema import ConfigError
from trainers.models.schedule import Schedule


def test_rates_rise_linearly_and_then_fall_by_tens() -> None:
    schedule = Schedule(learning_rate=0.8, epochs=6, decay_epochs=[2, 4.5], warmup_steps=3)
    assert [schedule.at(0, step) for step in range(5)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8])
    rates = {1.99: 0.8, 2.0: 0.08, 4.49: 0.08, 4.5: 0.008, 5.9: 0.008}
    assert {epoch: schedule.at(epoch, 100) for epoch in rates} == pytest.approx(rates)
    assert schedule.at(2) == pytest.approx(0.02)  # a warm-up that lasts beyond a decay
    assert Schedule(0.8, 1, []).at(0) == 0.8


def test_rates_fall_along_a_polynomial_to_an_end() -> None:
    schedule = Schedule(0.8, 6, None, warmup_epochs=2, decay_power=2, end_learning_rate=0.4)
    rates = {1: 0.4, 2: 0.8, 4: 0.5, 6: 0.4, 7: 0.4}
    assert {epoch: schedule.at(epoch) for epoch in rates} == pytest.approx(rates)
    for wrong in ({"decay_power": 0}, {"decay_power": 2, "end_learning_rate": 0.8}, {"end_learning_rate": 0.1}):
        with pytest.raises(ConfigError, match=f"model.hparams.{[*wrong][-1]}="):
            Schedule(0.8, 6, None, **wrong)
    with pytest.raises(ConfigError, match="decay_power=2: must be a power above 0, with decay_epochs=null"):
        Schedule(0.8, 6, [3], decay_power=2)


def test_only_a_decay_to_zero_ends_at_zero() -> None:
    for schedule, ends in (
        (Schedule(0.8, 6, None), True),
        (Schedule(0.8, 6, None, decay_power=2), True),
        (Schedule(0.8, 6, None, decay_power=2, end_learning_rate=0.4), False),
        (Schedule(0.8, 6, [3]), False),
        (Schedule(0.8, 6, []), False),
    ):
        assert schedule.ends_at_zero == ends == (schedule.at(6) == 0)


def test_every_group_has_its_step_s_rate() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": [parameter]} for parameter in parameters], lr=9.0)
    schedule = Schedule(learning_rate=1.0, epochs=2, decay_epochs=[1.5], warmup_steps=5)
    rates = []
    for epoch in range(2):
        trainer = SimpleNamespace(num_training_batches=4, current_epoch=epoch, optimizers=[optimizer])
        for batch_idx in range(4):
            schedule.apply(trainer, batch_idx)
            assert len({group["lr"] for group in optimizer.param_groups}) == 1
            rates.append(optimizer.param_groups[1]["lr"])
    assert rates == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1, 0.1, 0.1])


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"epochs": 0}, "epochs=0: must be a whole number of epochs, 1 or more"),
        ({"epochs": 1.5}, "epochs=1.5: must be a whole number of epochs, 1 or more"),
        ({"warmup_steps": -1}, "warmup_steps=-1: must be a whole number of steps, 0 or more"),
        ({"decay_epochs": [3, 2]}, r"decay_epochs=\[3, 2\]: must be ascending epochs, none before 0"),
        ({"decay_epochs": [-1.0]}, r"decay_epochs=\[-1.0\]: must be ascending epochs, none before 0"),
    ],
    ids=str,
)
def test_wrong_options_are_named(option: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=rf"model\.hparams\.{words}"):
        Schedule(**{"learning_rate": 1.0, "epochs": 2, "decay_epochs": [], "warmup_steps": 0, **option})
