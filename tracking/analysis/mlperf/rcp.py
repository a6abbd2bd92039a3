"""MLPerf's check of convergence: whether the epochs of runs are too few to be true for their batch.

MLCommons publishes reference convergence points: by benchmark and global batch size, how many epochs its reference took
to the target, in ten runs or more. A submission whose mean is below what the reference's spread allows is refused.
Package mlperf_logging has the points and this rule; github.com/mlcommons/logging, mlperf_logging/rcp_checker/README.md.
"""

from __future__ import annotations

import contextlib
import io
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tracking.analysis.mlperf.score import Score
from tracking.analysis.statistics import counted, olympic_mean

PACKAGE = "mlperf_logging"
LEAST_OLYMPIC = 3  # runs of which a mean without the first and the last can be taken
Point = Mapping[str, Any]


@dataclass(frozen=True)
class Convergence:
    """The epochs of a setting's runs beside the reference's.

    `least` is what MLPerf accepts as a mean, and `reference` its mean; None where there is no point, and `why` says so.
    `good` is None where nothing can be said.
    """

    epochs: float | None = None
    num_runs: int = 0
    batch: int = 0
    ruleset: str = ""
    reference: float | None = None
    least: float | None = None
    interpolated: bool = False
    why: str = ""

    @property
    def good(self) -> bool | None:
        return None if self.epochs is None or self.least is None else self.epochs >= self.least

    @property
    def verdict(self) -> str:
        """In a sentence without its end."""
        if self.epochs is None or self.least is None or self.reference is None:
            return f"convergence is not checked: {self.why}"
        where = f"batch {self.batch:,}{', interpolated' if self.interpolated else ''}, rules {self.ruleset}"
        words = f"{self.epochs:.4g} epochs ({counted(self.num_runs, 'run')}), reference {self.reference:.4g} ({where})"
        if not self.good:
            return f"too few epochs to be true: {words}, at least {self.least:.4g} are accepted"
        fewer = (
            f"; MLPerf scales its time by {self.reference / self.epochs:.3f}" if self.epochs < self.reference else ""
        )
        return f"convergence is plausible: {words}{fewer}"


def convergence(score: Score, checker: ModuleType | None = None) -> Convergence:
    """What the points of its benchmark say of a setting's runs that reached the target."""
    benchmark, said = score.benchmark, score.setting.get("global_batch_size", "")
    epochs = [run.epochs for run in score.counted if run.reached and run.epochs is not None]
    if not said.isdecimal() or not epochs:
        return Convergence(why="the logs do not say the global batch size" if epochs else "no run reached its target "
                           "at an epoch that its log says")  # fmt: skip
    batch = int(said)
    module = checker or _checker()
    for ruleset in _rulesets(module, benchmark.name, benchmark.holds_in):
        with contextlib.redirect_stdout(io.StringIO()):
            points = module.RCP_Checker("training", ruleset, benchmark.name, False)
        point, interpolated = _point(points, batch)
        if point is None:
            why = f"rules {ruleset} have no reference of {benchmark.name} at batch {batch:,} or around it"
            return Convergence(why=why)
        mean = olympic_mean(epochs) if len(epochs) >= LEAST_OLYMPIC else statistics.fmean(epochs)
        reference, least = float(point["RCP Mean"]), float(point["Min Epochs"])
        return Convergence(mean, len(epochs), batch, ruleset, reference, least, interpolated)
    return Convergence(why=f"there are no reference convergence points of {benchmark.name} to its target")


def _checker() -> ModuleType:
    """Raises ValueError that says how to get the package."""
    try:
        from mlperf_logging.rcp_checker import rcp_checker
    except ImportError:
        raise ValueError(f"--rcp needs the package {PACKAGE.replace('_', '-')}, which has the reference's epochs: "
                         "pip install 'timetrial[mlperf]'") from None  # fmt: skip
    module: ModuleType = rcp_checker
    return module


def _rulesets(module: ModuleType, name: str, holds_in: Any) -> Iterator[str]:
    """The rules that have points of a benchmark, the newest first, of rounds in which the target was the same."""
    assert module.__file__
    files = Path(module.__file__).parent.glob(f"training_*/rcps_{name}.json")
    versions = [path.parent.name.removeprefix("training_") for path in files]
    for version in sorted(versions, key=lambda version: [*map(int, version.split("."))], reverse=True):
        if holds_in(float(version.rpartition(".")[0])):
            yield version


def _point(points: Any, batch: int) -> tuple[Point | None, bool]:
    """The reference at this batch, or between the two around it; below the smallest batch that of the smallest."""
    known: Sequence[Point] = sorted(points.pruned_rcp_data.values(), key=lambda point: int(point["BS"]))
    same = next((point for point in known if point["BS"] == batch), None)
    if same is not None:
        return same, False
    below = [point for point in known if point["BS"] < batch]
    above = [point for point in known if point["BS"] > batch]
    if below and above:
        return points._create_interp_rcp(batch, below[-1], above[0])[1], True
    return (above[0], False) if above else (None, False)
