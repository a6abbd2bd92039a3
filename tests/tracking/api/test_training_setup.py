"""After how many batches a script's trainer evaluates, as it identifies a setting."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tracking.api.options import TrainingSetup, TrialOptions, config_of, params_of
from tracking.api.training_setup import eval_every_batches

INF = float("inf")


@pytest.mark.parametrize(
    ("every", "epochs", "of_epoch", "expected"),
    [
        (10, 1, 10, None),  # each epoch
        (5, 1, 10, 5),  # val_check_interval=0.5
        (25, None, 10, 25),  # over all epochs
        (10, 3, 10, 30),  # check_val_every_n_epoch=3
        (INF, 1, INF, None),  # the end of a stream
        (7, 1, INF, 7),
        (None, 1, 10, None),  # by the time of day
    ],
)
def test_it_is_what_lightning_goes_by(every: Any, epochs: Any, of_epoch: Any, expected: int | None) -> None:
    trainer: Any = SimpleNamespace(
        val_check_batch=every, check_val_every_n_epoch=epochs, num_training_batches=of_epoch, num_val_batches=[2]
    )
    assert eval_every_batches(trainer) == expected
    trainer.num_val_batches = []
    assert eval_every_batches(trainer) is None


def test_the_interval_is_in_samples_of_all_processes() -> None:
    options = TrialOptions({})
    setup = TrainingSetup("net", False, 1, 4, batch_size=8, accumulate=2, processes_per_batch=2, eval_every_batches=5)
    params = params_of(options, setup, config_of(options, setup))
    assert (params["global_batch_size"], params["eval_interval_samples"]) == (32, 80)
    unknown = TrainingSetup("net", False, 1, 4, eval_every_batches=5)
    assert "eval_interval_samples" not in params_of(options, unknown, config_of(options, unknown))
