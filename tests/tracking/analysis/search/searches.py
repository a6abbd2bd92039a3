"""Searches whose truth is known, run without a clock."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from tracking.analysis.search import Axis, Rules, Scalar, SearchTrial, propose

Setting = Mapping[str, Scalar]
AXES = (Axis("gpus", (1, 2, 4)), Axis("batch_size", (4, 8, 16, 32)), Axis("lr", (0.002, 0.004, 0.008, 0.016, 0.032)))
START = 10.0  # what a run costs beside its time


def true_time(setting: Setting) -> float:
    """Least at four GPUs, batch size 8 and a learning rate of 0.008."""
    gpus, batch, rate = (float(setting[key]) for key in ("gpus", "batch_size", "lr"))
    best_rate = 0.004 * math.sqrt(gpus * batch / 8)
    epochs = 5 * (1 + gpus * batch / 64) * (1 + 0.5 * math.log(rate / best_rate) ** 2)
    return epochs * 10 / gpus**0.9 * (1 + 4 / batch)


def ended(trial: SearchTrial, time: float) -> SearchTrial:
    """A run that was started, with the time that it takes if it is not stopped."""
    if trial.cap is not None and time > trial.cap:
        return replace(trial, state="stopped", censored_at=trial.cap, cost=trial.cap + START)
    return replace(trial, state="reached", value=time, cost=time + START)


def noisy(
    noise: float, seed: int, time: Callable[[Setting], float] = true_time
) -> Callable[[SearchTrial], SearchTrial]:
    """Ends runs with this noise, the same for the same run."""

    def end(trial: SearchTrial) -> SearchTrial:
        draw = random.Random(f"{seed} {trial.key} {trial.seed}").gauss(0, noise)
        return ended(trial, time(trial.setting) * math.exp(draw))

    return end


def searched(rules: Rules, end: Callable[[SearchTrial], SearchTrial], most: int = 300) -> list[SearchTrial]:
    """All runs of a search, one after the other."""
    trials: list[SearchTrial] = []
    while new := propose(rules, trials):
        trials += map(end, new)
        assert len(trials) < most, "the search does not end"
    return trials
