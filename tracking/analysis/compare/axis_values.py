"""The axes that a report compares by, and their values for each run."""

from __future__ import annotations

from collections.abc import Sequence

from tracking.analysis.compare.grouping import SHORT, title
from tracking.analysis.results import NONE, REPEATS, TASK, Run, Runs, words
from tracking.request import stored_config

# The axes tried first if the user names none; other params follow by name.
LIKELY = ("gpus", "nodes", "cpu_processes", "precision", "stack", "instance", "batch_size")


class Values:
    """The value of an axis for a run: a param, a tag, or a key of config.yaml, which is read only if needed."""

    def __init__(self, store: Runs, runs: Sequence[Run]) -> None:
        self._store = store
        self._configs: dict[str, dict[str, str]] = {}
        self.damaged: set[str] = set()  # ids of runs whose config.yaml cannot be read
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
        """Every key of the run's config.yaml, dotted; empty if the file is missing or unreadable."""
        if run.id not in self._configs:
            self._configs[run.id] = {}
            try:
                content = stored_config.loaded(self._store.text(run, "config.yaml"))
                if not isinstance(content, dict):
                    raise ValueError("it has no options")
                self._configs[run.id] = words(content)
            except FileNotFoundError:
                pass
            except ValueError:
                self.damaged.add(run.id)
        return self._configs[run.id]

    def check(self, axes: Sequence[str], runs: Sequence[Run]) -> None:
        """Raise ValueError for an axis without a value in any run."""
        for axis in axes:
            if self.key(axis) not in self._known and all(axis not in self.config(run) for run in runs):
                shown = sorted(key for key in self._known if not key.startswith(("mlflow.", "timetrial.")))
                raise ValueError(
                    f"--by {axis}: no run has such a param, tag or key of config.yaml. Allowed: {', '.join(shown)}"
                )


def with_pairs(axes: list[str], runs: Sequence[Run]) -> list[str]:
    """The axes, with `gpu_indices` after `gpus` if runs chose their GPUs: other GPUs are not repeats of a setting."""
    if "gpus" not in axes or "gpu_indices" in axes or not any("gpu_indices" in run.params for run in runs):
        return axes
    place = axes.index("gpus") + 1
    return [*axes[:place], "gpu_indices", *axes[place:]]


def likely_axes(runs: Sequence[Run]) -> list[str]:
    """The params in which runs of a workload differ; ["gpus"] if they do not differ.

    Axes that separate no further settings are skipped, such as a learning rate that follows from the number of GPUs.
    """
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
