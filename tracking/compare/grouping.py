"""Runs put into workloads and settings: what was trained, and the values of the axes that a report compares by."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from tracking.compare.given_up import UNTIL_GIVEN_UP, given_up_at
from tracking.results import NONE, REPEATS, TASK, Run, Runs, words
from tracking.run import evaluations
from tracking.statistics import Share, Times, finite, share

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML was built with it
DEVICES = ("gpus", "nodes", "cpu_processes")
MISSED = "target missed"  # why a run is excluded that trained to its end
SHORT = {"topology": "env.topology", "hardware": "env.gpu", "driver": "env.driver", "cuda": "env.cuda"}
STACK_AXES = {"stack", "stack.name", "env.stack_id", "env.image"} | {
    f"env.{key}" for key in ("driver", "cuda", "cudnn", "nccl", "torch", "python")
}
# Metrics that do not depend on whether the target was reached.
OF_ANY_RUN = (
    "throughput/",
    "time/epoch_sec",
    "time/evaluation_interval_sec",
    "epochs/trained",
    "world_size",
    "bottleneck/",
    "utilization/",
    "ceilings/",
    "roofline/",
    evaluations.BEST,
)
# The axes that are tried where none are asked for, in this order; other params follow by name.
LIKELY = ("gpus", "nodes", "cpu_processes", "precision", "stack", "instance", "batch_size")


@dataclass(frozen=True)
class Setting:
    """Runs that have the same values of the axes: `runs` are averaged, of `total` with those that are not.

    Of these, `missed` trained to their end without reaching the target: what has nothing to do with it was measured.
    `given_up` did not get to their target: in a figure to accuracy they count as such.
    """

    labels: Mapping[str, str]
    runs: Sequence[Run]
    total: int
    missed: Sequence[Run] = ()
    given_up: Sequence[Run] = ()

    @property
    def name(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.labels.items()) or "all"

    def values(self, key: str) -> list[float]:
        return [run.metrics[key] for run in self.runs if key in run.metrics]

    def with_missed(self, key: str) -> list[Run]:
        """The runs that have this metric, with those that missed the target where it is `of_any_run`."""
        return [run for run in (*self.runs, *(self.missed if of_any_run(key) else ())) if key in run.metrics]

    def measured(self, key: str) -> Times:
        """What a table of settings shows of a metric."""
        if key in UNTIL_GIVEN_UP:
            return self.times(key)
        return Times(finite([run.metrics[key] for run in self.with_missed(key)]), interval=step(key))

    def times(self, key: str) -> Times:
        """The values of a metric; of one to accuracy, also what is known of the runs that did not get there.

        By when such a run was given up is 0 where nothing says it, and others of the setting have the metric.
        """
        reached = finite(self.values(key))
        if key not in UNTIL_GIVEN_UP:
            return Times(reached, interval=step(key))
        bounds = [given_up_at(key, run.metrics) for run in self.given_up if not run.diverged]
        if not reached and not any(bounds):
            bounds = []
        num_diverged = sum(run.diverged for run in self.given_up)
        return Times(reached, [bound or 0.0 for bound in bounds], (), num_diverged, step(key))

    def usual_n(self, key: str) -> int:
        """How many runs a figure of this metric is of where it does not say it."""
        return self.reached.n if self.reached and key in UNTIL_GIVEN_UP else len(self.runs)

    @property
    def reached(self) -> Share | None:
        """How many of its runs reached their target; None where none had one."""
        num_reached = len(self.values("time/to_accuracy_sec"))
        return share(num_reached, num_reached + len(self.given_up))

    @property
    def devices(self) -> float | None:
        """The measured world size, where all its runs had the same."""
        sizes = set(self.values("world_size"))
        return sizes.pop() if len(sizes) == 1 else None


@dataclass(frozen=True)
class Task:
    """One model on one dataset to one target, its settings in order, and the runs that are averaged nowhere."""

    title: str
    settings: Sequence[Setting]
    excluded: Sequence[tuple[Run, str, str]] = field(default_factory=list)  # run, setting, why

    @property
    def runs(self) -> list[Run]:
        return [run for setting in self.settings for run in setting.runs]


def step(key: str) -> float:
    """The step in which a metric is measured, 0 for none: epochs and evaluations are whole numbers."""
    return 1.0 if key.startswith(("epochs/", "evaluations/")) else 0.0


def of_any_run(key: str) -> bool:
    """Whether a metric says as much of a run that missed its target as of one that reached it: rates, best values."""
    return key.startswith(OF_ANY_RUN)


def why_excluded(run: Run, with_missed: bool = False) -> str | None:
    """Why a run is in no average; None where it counts. `with_missed`: a missed target alone does not exclude it."""
    if run.uncounted:
        return f"not counted: {run.uncounted}"
    if run.status == "RUNNING":
        return "not ended"
    if run.failure:
        return {"nan": "diverged: nan"}.get(run.failure, f"failed: {run.failure}")
    if run.resumed:
        return "interrupted and resumed"
    return MISSED if run.missed and not with_missed else None


def is_given_up(run: Run) -> bool:
    """Whether it says of itself that it had not reached its target: missed, timed out or diverged.

    A run that was resumed has no time of one go by when it had not.
    """
    if run.uncounted or not run.params.get("target_metric"):
        return False
    return run.diverged or (not run.resumed and (run.missed or run.failure == "timeout"))


def group(runs: Sequence[Run], axes: Sequence[str], values: Values, with_missed: bool = False) -> list[Task]:
    """The workloads in order of their names, each with its settings in order of the axes' values."""
    workloads: dict[str, dict[tuple[str, ...], list[Run]]] = {}
    for run in runs:
        labels = tuple(values(run, axis) for axis in axes)
        workloads.setdefault(title(run), {}).setdefault(labels, []).append(run)
    return [_task(name, axes, workloads[name], with_missed) for name in sorted(workloads)]


def _task(name: str, axes: Sequence[str], members: Mapping[tuple[str, ...], list[Run]], with_missed: bool) -> Task:
    settings, excluded = [], []
    places = {labels: [in_order(value, is_stack(axis)) for axis, value in zip(axes, labels, strict=True)]
              for labels in members}  # fmt: skip
    for labels in sorted(members, key=places.__getitem__):
        runs = members[labels]
        good = [run for run in runs if why_excluded(run, with_missed) is None]
        missed = [run for run in runs if why_excluded(run) == MISSED and run not in good]
        given_up = [run for run in runs if is_given_up(run)]
        settings.append(Setting(dict(zip(axes, labels, strict=True)), good, len(runs), missed, given_up))
        reasons = [(run, why_excluded(run, with_missed)) for run in runs]
        excluded += [(run, settings[-1].name, reason) for run, reason in reasons if reason]
    return Task(name, settings, excluded)


def title(run: Run) -> str:
    model, dataset, metric, value = (run.params.get(key) for key in TASK)
    targets = zip((metric or "").split(","), (value or "").split(","), strict=False)
    target = " and ".join(f"{name} {number}" for name, number in targets if name)
    return f"{model or '?'} on {dataset or '?'}" + (f" to {target}" if target else ", no target")


def in_order(value: str, version: bool = False) -> list[tuple[int, float, str]]:
    """Sorts numbers by value and before words; of a version its parts one after the other: 535.9 before 535.104."""
    try:
        return [_in_order(part) for part in re.split(r"[.+_ -]", value)] if version else [(0, float(value), "")]
    except ValueError:
        return [(1, 0.0, value)]


def _in_order(part: str) -> tuple[int, float, str]:
    return (0, float(part), "") if part.isdecimal() else (1, 0.0, part)


def is_stack(axis: str) -> bool:
    """Whether an axis is of the software that a run is computed with."""
    return SHORT.get(axis, axis) in STACK_AXES


class Values:
    """The value of an axis for a run: a param, a tag, or a key of config.yaml, which is read only where it must be."""

    def __init__(self, store: Runs, runs: Sequence[Run]) -> None:
        self._store = store
        self._configs: dict[str, dict[str, str]] = {}
        self._known = {key for run in runs for key in (*run.params, *run.tags)}

    def __call__(self, run: Run, axis: str) -> str:
        key = self.key(axis)
        if key in self._known:
            return run.params.get(key) or run.tags.get(key) or NONE
        return self.config(run).get(axis, NONE)

    def key(self, axis: str) -> str:
        """The param or tag that an axis stands for: env.driver for driver, optimizer/lr for model.optimizer.lr."""
        param = axis.removeprefix("model.").replace(".", "/")
        return next((key for key in (axis, SHORT.get(axis, axis), param) if key in self._known), axis)

    def config(self, run: Run) -> dict[str, str]:
        """Every key of the run's config.yaml, dotted; empty where it has none that can be read."""
        if run.id not in self._configs:
            try:
                self._configs[run.id] = words(yaml.load(self._store.text(run, "config.yaml"), LOADER))
            except (FileNotFoundError, yaml.YAMLError):
                self._configs[run.id] = {}
        return self._configs[run.id]

    def check(self, axes: Sequence[str], runs: Sequence[Run]) -> None:
        """Raise ValueError for an axis of which no run has a value."""
        for axis in axes:
            if self.key(axis) not in self._known and all(axis not in self.config(run) for run in runs):
                shown = sorted(key for key in self._known if not key.startswith(("mlflow.", "timetrial.")))
                raise ValueError(
                    f"--by {axis}: no run has such a param, tag or key of config.yaml; there are: {', '.join(shown)}"
                )


def with_pairs(axes: list[str], runs: Sequence[Run]) -> list[str]:
    """The axes, with the GPUs' indices behind their number where runs chose theirs: pairs are no repeats of another."""
    if "gpus" not in axes or "gpu_indices" in axes or not any("gpu_indices" in run.params for run in runs):
        return axes
    place = axes.index("gpus") + 1
    return [*axes[:place], "gpu_indices", *axes[place:]]


def likely_axes(runs: Sequence[Run]) -> list[str]:
    """The params in which runs of a workload differ; one that tells no more settings apart than those before is not
    taken (a learning rate that follows from the number of GPUs)."""
    differing = [key for key in sorted({key for run in runs for key in run.params}) if _differs(runs, key)]
    candidates = [key for key in LIKELY if key in differing]
    candidates += [key for key in differing if key not in (*LIKELY, *TASK, *REPEATS)]
    axes: list[str] = []
    for key in candidates:
        if _num_settings(runs, [*axes, key]) > _num_settings(runs, axes):
            axes.append(key)
    return axes or ["gpus"]


def _differs(runs: Sequence[Run], key: str) -> bool:
    return _num_settings(runs, [key]) > _num_settings(runs, [])


def _num_settings(runs: Sequence[Run], axes: Sequence[str]) -> int:
    return len({(title(run), *(run.params.get(axis) for axis in axes)) for run in runs})
