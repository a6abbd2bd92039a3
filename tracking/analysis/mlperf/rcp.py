"""MLPerf's check of convergence: whether runs reached the target in implausibly few epochs for their batch size.

MLCommons publishes reference convergence points: for each benchmark and global batch size, the epochs that its
reference took to the target in ten runs or more. MLPerf refuses a submission whose mean is below what the reference's
spread allows. The package mlperf_logging holds the points and this rule: github.com/mlcommons/logging,
mlperf_logging/rcp_checker/README.md.
"""

from __future__ import annotations

import ast
import contextlib
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from conf.target import Target, limit, meets_target
from tracking.analysis.mlperf.score import Score
from tracking.analysis.statistics import olympic_mean
from tracking.base.number_text import counted, significant
from tracking.measure.programs import Benchmark

PACKAGE = "mlperf_logging"
LAST_IN_EPOCHS = 3.0  # the last rules in which UNet3D counts epochs
LEAST_SAMPLES = 20_000  # any run of UNet3D has fewer epochs and more samples than this
Point = Mapping[str, Any]


@dataclass(frozen=True)
class Convergence:
    """The epochs of a setting's runs beside the reference's.

    `reference` is the reference's mean, `least` the smallest mean that MLPerf accepts. Both are None without a point;
    `why` gives the reason. `good` is None if the check cannot tell.
    """

    epochs: float | None = None
    num_runs: int = 0
    batch: int = 0
    ruleset: str = ""
    reference: float | None = None
    least: float | None = None
    interpolated: bool = False
    why: str = ""
    point_batch: int = 0  # the point's batch size; above `batch` if all points have larger ones

    @property
    def good(self) -> bool | None:
        if self.epochs is None or self.least is None:
            return None
        return True if self.epochs >= self.least else None if self.point_batch > self.batch else False

    @property
    def verdict(self) -> str:
        """The result as a sentence without its full stop."""
        if self.epochs is None or self.least is None or self.reference is None:
            return f"convergence is not checked: {self.why}"
        where = f"batch {self.point_batch:,}{', interpolated' if self.interpolated else ''}, rules {self.ruleset}"
        reference = f"reference {significant(self.reference, 4)} ({where})"
        words = f"{significant(self.epochs, 4)} epochs ({counted(self.num_runs, 'run')}), {reference}"
        if self.good is None:
            return f"convergence is not checked: no reference at batch {self.batch:,} or below: {words}"
        if not self.good:
            return f"implausibly few epochs: {words}; MLPerf accepts {significant(self.least, 4)} or more"
        fewer = (
            f"; MLPerf scales its time by {self.reference / self.epochs:.3f}" if self.epochs < self.reference else ""
        )
        return f"convergence is plausible: {words}{fewer}"


def convergence(score: Score) -> Convergence:
    """The check of a setting's runs against MLPerf's reference points. A run without the target is the slowest."""
    if why := _unlike(score):
        return Convergence(why=why)
    benchmark, batch = score.benchmark, int(score.setting["global_batch_size"])
    epochs = [math.inf if run.epochs is None or not run.reached else run.epochs for run in score.counted]
    module = _checker()
    for ruleset in _rulesets(module, benchmark, min(epochs)):
        with contextlib.redirect_stdout(io.StringIO()):
            points = module.RCP_Checker("training", ruleset, benchmark.name, False)
        point, interpolated = _point(points, batch)
        if point is None:
            why = f"rules {ruleset} have no reference for {benchmark.name} at or around batch {batch:,}"
            return Convergence(why=why)
        mean = olympic_mean(epochs, benchmark.dropped)
        reference, least = float(point["RCP Mean"]), float(point["Min Epochs"])
        point_batch = int(point["BS"])
        return Convergence(mean, len(epochs), batch, ruleset, reference, least, interpolated, point_batch=point_batch)
    return Convergence(why=f"MLPerf has no reference convergence points for {benchmark.name} to its target")


def _unlike(score: Score) -> str:
    """Why the runs cannot be compared with the benchmark's points; "" if they can."""
    benchmark, runs = score.benchmark, score.counted
    if not any(run.reached and run.epochs is not None for run in runs):
        return "no log has both a reached target and the epoch of its last evaluation"
    if any(run.reached and run.epochs is None for run in runs):
        return "not every log gives the epoch of its last evaluation"
    if not score.setting.get("global_batch_size", "").isdecimal():
        return "the logs do not give the global batch size"
    if (dataset := score.setting.get("dataset", benchmark.dataset)) != benchmark.dataset:
        return f"the runs used another dataset, {dataset} instead of {benchmark.dataset}"
    if lower := _lower(score.setting.get("target_accuracy", ""), benchmark.targets):
        return f"the runs' target is easier than the points': {lower}"
    if score.num_missing:
        return f"{len(runs)} of {counted(score.num_needed, 'run')}"
    if score.num_missed > benchmark.dropped:
        return f"{score.num_missed} of {counted(len(runs), 'run')} missed the target, at most {benchmark.dropped} may"
    return ""


def _lower(target_text: str, targets: Mapping[str, Target]) -> str:
    """The targets in our log (log.py) that are easier than MLPerf's; "" for other logs, which hold one number."""
    try:
        logged = ast.literal_eval(target_text)
    except (ValueError, SyntaxError):
        return ""
    if not isinstance(logged, dict):
        return ""
    lower = [
        key for key, target in targets.items() if key not in logged or not meets_target(limit(logged[key]), target)
    ]
    return ", ".join(f"{key} {logged.get(key, 'none')} instead of {limit(targets[key]):g}" for key in lower)


def _checker() -> ModuleType:
    """The package's module. Raises ValueError with the command that installs it."""
    try:
        from mlperf_logging.rcp_checker import rcp_checker
    except ImportError:
        raise ValueError(f"--rcp needs the package {PACKAGE.replace('_', '-')}, which holds the reference's epochs. "
                         "Next: pip install mlperf-logging (the extra mlperf)") from None  # fmt: skip
    module: ModuleType = rcp_checker
    return module


def _rulesets(module: ModuleType, benchmark: Benchmark, epochs: float) -> Iterator[str]:
    """The rules with points for a benchmark, newest first, from the rounds with the same target.

    UNet3D's points count epochs up to rules 3.0 and samples from 3.1 on. `epochs` shows which of the two a log counts.
    """
    name = benchmark.name
    if name not in module.submission_runs["training"]:  # the package also has points of DLRM, and refuses them
        return
    assert module.__file__
    files = Path(module.__file__).parent.glob(f"training_*/rcps_{name}.json")
    versions = [path.parent.name.removeprefix("training_") for path in files]
    for version in sorted(versions, key=lambda version: [*map(int, version.split("."))], reverse=True):
        round_ = float(version.rpartition(".")[0])
        in_samples = name == "unet3d" and epochs >= LEAST_SAMPLES
        if benchmark.covers(round_) and (name != "unet3d" or in_samples == (round_ > LAST_IN_EPOCHS)):
            yield version


def _point(points: Any, batch: int) -> tuple[Point | None, bool]:
    """The point at this batch size, else interpolated (True); below the smallest batch size, the smallest point."""
    known: Sequence[Point] = sorted(points.pruned_rcp_data.values(), key=lambda point: int(point["BS"]))
    same = next((point for point in known if point["BS"] == batch), None)
    if same is not None:
        return same, False
    below = [point for point in known if point["BS"] < batch]
    above = [point for point in known if point["BS"] > batch]
    if below and above:
        return points._create_interp_rcp(batch, below[-1], above[0])[1], True
    return (above[0], False) if above else (None, False)
