"""Verdicts on runs that end with whole epochs, by simulation: equal settings are told apart in 5 % at most."""

from __future__ import annotations

import math
import random

import pytest

from tracking.analysis.compare import compare
from tracking.analysis.compare.grouping import group
from tracking.analysis.results import Run

PARAMS = {"model": "vgg", "dataset": "digits", "target_metric": "accuracy", "target_value": "0.9"}
TRIALS = 200
MOST = 0.05 + 3 * math.sqrt(0.05 * 0.95 / TRIALS)
# Figures that grow with the epochs, in units a second of training.
GROWING = {
    "time/to_accuracy_sec": 1.0, "cost/to_accuracy_usd": 0.01, "energy/to_accuracy_joules": 300.0,
    "energy/to_accuracy_co2_grams": 0.03, "time/train_sec": 0.9, "time/eval_sec": 0.1, "cost/usd": 0.01,
    "energy/joules": 300.0, "energy/kwh": 1e-4, "energy/co2_grams": 0.03,
}  # fmt: skip


def run(chance: random.Random, name: str, seed: int, epoch_sec: float = 10.0) -> Run:
    """A run that reaches its target after five or six epochs, and ends there."""
    epochs, epoch_sec = chance.choice((5.0, 6.0)), epoch_sec * (1 + 0.005 * chance.gauss(0, 1))
    metrics = {key: epochs * epoch_sec * scale for key, scale in GROWING.items()} | {
        "target_reached": 1.0, "epochs/to_accuracy": epochs, "evaluations/to_accuracy": epochs,
        "epochs/trained": epochs, "time/evaluation_interval_sec": epoch_sec, "time/epoch_sec": 0.9 * epoch_sec,
        "throughput/samples_per_sec": 1e4 / epoch_sec,
    }  # fmt: skip
    params = PARAMS | {"setting": name, "seed": str(seed)}
    return Run(f"{name}{seed}", name, "e", "FINISHED", 0, 1, params, {}, metrics)


def share_told_apart(key: str, n: int, second_epoch_sec: float = 10.0) -> float:
    """How often two settings of n runs are told apart by a metric."""
    chance, told = random.Random(f"{key} {n}"), 0
    for _ in range(TRIALS):
        runs = [run(chance, "a", seed) for seed in range(n)]
        runs += [run(chance, "b", seed, second_epoch_sec) for seed in range(n)]
        [task] = group(runs, ["setting"], lambda run, axis: run.params[axis])
        [pair] = compare(task, key)
        told += pair.told_apart
    return told / TRIALS


@pytest.mark.parametrize("key", GROWING)
def test_equal_settings_are_seldom_told_apart_by_what_grows_with_the_epochs(key: str) -> None:
    for n in (2, 5):
        assert share_told_apart(key, n) < MOST, n


@pytest.mark.parametrize("key", ["time/epoch_sec", "throughput/samples_per_sec"])
def test_a_rate_tells_settings_apart_that_times_on_epochs_do_not(key: str) -> None:
    assert share_told_apart(key, 5, second_epoch_sec=10.3) > 0.9
    assert share_told_apart("time/train_sec", 5, second_epoch_sec=10.3) < MOST
