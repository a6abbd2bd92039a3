"""MiniGo in MLPerf's log: what the checkers of versions 0.7 and 0.6 ask for, and where our runs differ from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.composing import composed
from tracking.analysis.mlperf.benchmarks import benchmark_of

# Of mlperf_logging 0.7.0, compliance_checker/training_0.7.0/closed_minigo.yaml: exactly once.
EXACTLY_ONCE = {"train_batch_size", "lr_boundaries", "lr_rates", "min_selfplay_games_per_generation"}


def keys(*overrides: str) -> Mapping[str, Any]:
    config = composed(["model=minigo", "recipe=minigo_reference", "gpus=0", *overrides])
    benchmark = benchmark_of(config)
    assert benchmark is not None
    assert benchmark.name == "minigo"
    return benchmark.hyperparameters(config, 24)


def test_a_run_has_each_key_of_the_checker() -> None:
    of_definition = keys()
    assert of_definition.keys() >= EXACTLY_ONCE
    assert of_definition["lr_boundaries"] == [25000, 37500]
    assert of_definition["lr_rates"] == [0.16, 0.016, 0.0016]
    of_06 = {"opt_learning_rate_decay_boundary_steps": "lr_boundaries", "opt_base_learning_rate": "lr_rates"}
    assert all(of_definition[key] == of_definition[name] for key, name in of_06.items())
    assert of_definition["virtual_losses"] == 8
    assert of_definition["min_selfplay_games_per_generation"] == 2000  # The checker asks for 8,192.
    assert keys("model.hparams.games=8192", "batch_size=64")["actual_selfplay_games_per_generation"] == 8192
    assert keys("batch_size=64")["train_batch_size"] == 64


def test_an_evaluation_is_what_the_run_measures() -> None:
    benchmark = benchmark_of(composed(["model=minigo"]))
    assert benchmark is not None
    assert benchmark.accuracy({"pro_moves": 0.3}) == 0.3
    assert benchmark.accuracy({"wins_frozen": 0.51}) == 0.51
    assert benchmark.accuracy({"wins_random": 0.9}) is None
