"""Means of repeated runs with their uncertainty, their ratios, and speed-ups. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from conf.metric import HIGHER
from tracking.analysis.compare.grouping import Setting, Task, apart_from_devices
from tracking.analysis.statistics import Times, mean_and_standard_error, olympic_mean
from tracking.base import quantities

OLYMPIC_FROM = 5  # runs, as in MLPerf's vision benchmarks
BOUNDS = {"≥": "at least", "≤": "at most"}
OPPOSITE = {"": "", "≥": "≤", "≤": "≥"}  # the sign of a bound's negative and of its inverse


@dataclass(frozen=True)
class Estimate:
    """A mean of `n` runs, its standard error (None for one run), and MLPerf's olympic mean from five runs on.

    `bound` is "≥" or "≤" if the true mean is at least or at most `mean`, since runs did not reach their target. The
    olympic mean allows for one such run; `invalid` marks more.
    """

    mean: float
    error: float | None
    n: int
    olympic: float | None = None
    bound: str = ""
    invalid: bool = False

    def text(self, row_n: int | None = None, unit: str = "") -> str:
        """The mean to two digits of its error, with the unit; with n if it differs from the row's."""
        shown = f"{self.bound} {self._shown(self.mean)}".lstrip()
        if self.error is not None:
            shown += f" ± {self._shown(self.error)}"
        shown += unit
        if self.olympic is not None:
            shown += f" (olympic {self._shown(self.olympic)})"
        if self.invalid:
            shown += " (olympic invalid: several missed)"
        return shown if row_n is None or row_n == self.n else f"{shown} (n={self.n})"

    def scaled(self, scale: float) -> Estimate:
        """The estimate in another unit."""
        error, olympic = (None if value is None else scale * value for value in (self.error, self.olympic))
        return replace(self, mean=scale * self.mean, error=error, olympic=olympic)

    def _shown(self, value: float) -> str:
        """A value with `decimals()`; if the mean is a million or more, rounded to six digits of the mean."""
        zeros = max(0, _magnitude(self.mean) - 5)
        return f"{round(value, -zeros) if zeros else value:,.{self.decimals()}f}"

    def decimals(self) -> int:
        """Decimals that show two digits of the error, and at most six digits of the mean."""
        digits = 3 - _magnitude(self.mean)  # four digits of a mean without an error
        if self.error:
            digits = min(1 - _magnitude(self.error), 5 - _magnitude(self.mean))
        return max(0, digits)


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0


def estimate(times: Times, scale: float = 1.0) -> Estimate | None:
    """The mean; a bound if runs did not reach their target. None without any known value.

    MLPerf's training rules: a run that does not converge counts as the slowest; two or more make the result invalid.
    """
    scaled = times.scaled(scale)
    known = scaled.bounds()
    if not (scaled.reached or scaled.censored):
        return None
    enough, missed = len(known) >= OLYMPIC_FROM, scaled.num_short
    worst = -math.inf if scaled.higher else math.inf
    olympic = olympic_mean([*scaled.reached, *[worst] * missed]) if enough and missed < 2 else None
    return Estimate(*mean_and_standard_error(known), len(known), olympic, scaled.sign, enough and missed > 1)


def explained(signs: Iterable[str], why: str) -> str:
    """What the signs of bounds mean, each a sentence after a space: ` ≥: at least, since runs did not ...`."""
    return "".join(f" {sign}: {words}, since {why}." for sign, words in BOUNDS.items() if sign in {*signs})


def ratio(top: Estimate, bottom: Estimate) -> Estimate | None:
    """The ratio of two means, with its standard error by first-order propagation if both have one.

    None if a mean is not above 0: of two negative means the worse one has the larger ratio. None if both are bounds,
    since two bounds give no ratio.
    """
    if min(top.mean, bottom.mean) <= 0 or (top.bound and bottom.bound):
        return None
    bound = top.bound or OPPOSITE[bottom.bound]
    value = top.mean / bottom.mean
    error = None
    if top.error is not None and bottom.error is not None:
        error = value * math.hypot(top.error / top.mean, bottom.error / bottom.mean)
    return Estimate(value, error, min(top.n, bottom.n), bound=bound)


def base_of(setting: Setting, settings: Sequence[Setting]) -> Setting | None:
    """The setting with the fewest devices that is otherwise the same; None if no other number of devices was run."""
    same = _otherwise_same(setting, settings)
    if setting.devices is None or len({candidate.devices for candidate in same}) < 2:
        return None
    return min(same, key=lambda candidate: candidate.devices or 0)


def line_name(setting: Setting, settings: Sequence[Setting]) -> str:
    """The name of a setting's line over devices: its labels without devices; "" without any.

    The nodes stay if settings of the line have equally many devices, such as 4 x 1 and 2 x 2.
    """
    counts = [candidate.devices for candidate in _otherwise_same(setting, settings)]
    rest = apart_from_devices(setting.labels)
    shown = {*rest, "nodes"} if len({*counts}) < len(counts) else {*rest}
    return " ".join(f"{axis}={value}" for axis, value in setting.labels.items() if axis in shown)


def _otherwise_same(setting: Setting, settings: Sequence[Setting]) -> list[Setting]:
    """The settings with a known number of devices that differ from `setting` in it alone, itself among them."""
    rest = apart_from_devices(setting.labels)
    return [each for each in settings if each.devices and apart_from_devices(each.labels) == rest]


def speed_up(setting: Setting, base: Setting, key: str) -> tuple[Estimate, Estimate] | None:
    """The speed-up over the base setting by this metric, and the efficiency: speed-up / growth of the devices.

    The base is 1 by definition, without an error. None if `gain` is None, or if a number of devices is not known.
    """
    if not setting.devices or not base.devices:
        return None
    factor = gain(setting, base, key)
    if factor is None:
        return None
    if setting is base:
        return factor, factor
    growth = setting.devices / base.devices
    error = None if factor.error is None else factor.error / growth
    return factor, Estimate(factor.mean / growth, error, factor.n, bound=factor.bound)


def gain(setting: Setting, base: Setting, key: str) -> Estimate | None:
    """How many times better a setting is than the base by this metric. The base is 1 by definition, without an error.

    None if the metric's direction or a mean is not known, or a mean is not above 0 (`has_ratio`).
    """
    direction = setting.better(key)
    mean, base_mean = estimate(setting.measured(key)), estimate(base.measured(key))
    if mean is None or base_mean is None or direction is None or not has_ratio(setting, base, key):
        return None
    if setting is base:
        return Estimate(1.0, None, mean.n)
    return ratio(mean, base_mean) if direction == HIGHER else ratio(base_mean, mean)


def has_ratio(setting: Setting, base: Setting, key: str) -> bool:
    """Whether the known means of two settings are above 0. Log-likelihoods are not, nor is a loss of 0."""
    means = [estimate(side.measured(key)) for side in (setting, base)]
    return all(mean.mean > 0 for mean in means if mean)


def main_metric(tasks: Sequence[Task]) -> str:
    """The metric that settings are compared by: time to accuracy if a run has one, else the rate, else the time."""
    keys = (quantities.TIME_TO_ACCURACY_SEC, quantities.THROUGHPUT_SAMPLES_PER_SEC, quantities.TIME_TRAIN_SEC)
    has_runs: Mapping[str, bool] = {
        key: any(setting.runs_of(key) for task in tasks for setting in task.settings) for key in keys
    }
    return next((key for key in keys if has_runs[key]), keys[0])
