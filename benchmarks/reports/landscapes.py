"""Random landscapes with a known truth: 60 settings of GPUs, batch size and learning rate, or those of fewer GPUs.

The epochs to the target grow with the global batch, and with the squared log-distance of the learning rate from its
optimum. The optimum grows with the batch. An epoch's time falls with the number of GPUs, and with the batch of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from tracking.analysis.search import Axis, Scalar, SearchTrial

GPUS, BATCHES, RATES = (1, 2, 4), (8, 16, 32, 64), (0.002, 0.0045, 0.01, 0.022, 0.05)
AXES = (Axis("gpus", GPUS), Axis("batch_size", BATCHES), Axis("lr", RATES))
START_SEC = 10.0  # of a run, which takes about a minute on one GPU
MOST_EPOCHS = 2.5  # times the fewest epochs: then a run misses the target
MOST_MISSES = 0.1  # largest share of misses of a setting that may be the best
Setting = Mapping[str, Scalar]
SETTINGS: list[dict[str, Scalar]] = [
    dict(zip(("gpus", "batch_size", "lr"), values, strict=True)) for values in product(GPUS, BATCHES, RATES)
]


@dataclass(frozen=True)
class Landscape:
    """`noise`: the standard deviation of the logarithm of a run's epochs. `lumps`: only whole epochs are evaluated.
    `misses`: a run with too many epochs misses the target. `groups`: how many of GPUS are searched."""

    noise: float
    lumps: bool
    misses: bool
    seed: int
    fewest: float  # epochs
    double: float  # the global batch that needs twice as many epochs
    rate: float  # the best learning rate at a global batch of 64
    power: float  # the best rate grows with this power of the batch
    curvature: float
    scaling: float  # the rate of n GPUs is n^scaling
    half: float  # the batch at which a GPU reaches half of its rate
    epoch_sec: float  # on one GPU at full rate
    groups: int = len(GPUS)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (Axis("gpus", GPUS[: self.groups]), *AXES[1:])

    @cached_property
    def settings(self) -> list[dict[str, Scalar]]:
        return [setting for setting in SETTINGS if setting["gpus"] in GPUS[: self.groups]]

    def epochs(self, setting: Setting) -> float:
        """Median epochs of a run."""
        batch = float(setting["gpus"]) * float(setting["batch_size"])
        away = math.log(float(setting["lr"]) / (self.rate * (batch / 64) ** self.power))
        return self.fewest * (1 + batch / self.double) / (1 + 8 / self.double) * (1 + self.curvature * away**2)

    def epoch_time(self, setting: Setting) -> float:
        batch = float(setting["batch_size"])
        return self.epoch_sec * (1 + self.half / batch) / float(setting["gpus"]) ** self.scaling

    @property
    def most_epochs(self) -> float:
        return math.ceil(MOST_EPOCHS * self.fewest) if self.misses else math.inf

    def time(self, setting: Setting, seed: int) -> tuple[float | None, float, float]:
        """Time of a run (None if it misses the target), its end, and its evaluation interval."""
        run_seed = [self.seed, seed, SETTINGS.index(dict(setting))]
        epochs = self.epochs(setting) * math.exp(np.random.default_rng(run_seed).normal(0, self.noise))
        epoch_time = self.epoch_time(setting)
        if self.lumps:
            epochs = math.ceil(epochs)
        if epochs > self.most_epochs:
            return None, self.most_epochs * epoch_time, epoch_time
        return epochs * epoch_time, epochs * epoch_time, epoch_time if self.lumps else 0.0

    @cached_property
    def true_times(self) -> dict[tuple[Scalar, ...], float]:
        """Mean time of the runs that reach the target, by setting; infinite if more than a tenth of them miss."""
        times = {}
        for setting in self.settings:
            mean, short = self._mean_epochs(self.epochs(setting))
            times[tuple(setting.values())] = math.inf if short > MOST_MISSES else mean * self.epoch_time(setting)
        return times

    def _mean_epochs(self, median: float) -> tuple[float, float]:
        """Mean epochs of runs that reach the target, and the share of misses."""
        from scipy import stats

        logs = stats.norm(math.log(median), self.noise)
        short = float(logs.sf(math.log(self.most_epochs))) if self.misses else 0.0
        if self.lumps:
            ends = np.arange(1, min(self.most_epochs, 10 * math.ceil(median)) + 1)
            shares = np.diff(logs.cdf(np.log(ends)), prepend=0.0)
            return float(np.sum(ends * shares) / np.sum(shares)) if np.sum(shares) else math.inf, short
        mean = median * math.exp(self.noise**2 / 2)
        if not self.misses or short == 1:
            return mean, short
        return mean * float(logs.cdf(math.log(self.most_epochs) - self.noise**2)) / (1 - short), short

    def true_time(self, setting: Setting) -> float:
        return self.true_times[tuple(setting.values())]

    @property
    def best(self) -> float:
        return min(self.true_times.values())

    def ended(self, trial: SearchTrial) -> SearchTrial:
        """The ended trial: at its cap, its target or its last epoch. Its cost is in GPU-seconds."""
        gpus = float(trial.setting["gpus"])
        value, end, interval = self.time(trial.setting, trial.seed)
        if trial.cap is not None and end > trial.cap:
            return replace(
                trial, state="stopped", censored_at=trial.cap, cost=gpus * (trial.cap + START_SEC), interval=interval
            )
        cost = gpus * (end + START_SEC)
        if value is None:
            return replace(trial, state="missed", censored_at=end, cost=cost, interval=interval)
        return replace(trial, state="reached", value=value, cost=cost, interval=interval)


def landscape(noise: float, lumps: bool, misses: bool, seed: int) -> Landscape:
    """A random landscape. A seed gives the same one with any noise."""
    random = np.random.default_rng([seed, 45])
    return Landscape(
        noise, lumps, misses, seed,
        fewest=random.uniform(5, 20),
        double=random.uniform(64, 512),
        rate=0.01 * math.exp(random.uniform(-0.7, 0.7)),
        power=random.uniform(0.5, 1.0),
        curvature=random.uniform(0.2, 0.8),
        scaling=random.uniform(0.7, 0.98),
        half=random.uniform(2, 16),
        epoch_sec=random.uniform(3, 8),
    )  # fmt: skip
