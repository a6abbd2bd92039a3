"""The trace of a search, `search.json` in the sweep's folder: the request, each trial, and the answer so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from conf.launch_options import SearchConfig
from tracking.analysis.search import EXPLORE, Axis, Scalar, SearchTrial
from tracking.jobs.plan import Job
from tracking.record import documents

TRACE = "search.json"
VERSION = 1
ENDED = ("reached", "stopped", "missed")  # states of runs that say something about their setting


def write(
    folder: Path, search: SearchConfig, tried: Sequence[tuple[SearchTrial, Job | None]], answer: Mapping[str, Any]
) -> None:
    """Replace the trace; a trial without a job could not be run. Raises OSError."""
    rows = [_row(trial, job) for trial, job in tried]
    request = {"objective": search.objective, "budget": search.budget, "axes": search.axes}
    content = {"version": VERSION, "asked": request, "trials": rows, "answer": answer}
    documents.write_json(folder / TRACE, documents.finite(content))


def best_of(folder: Path, axes: Sequence[Axis]) -> list[dict[str, Scalar]]:
    """The best settings of an earlier search, the best of all first; keys and values off these axes are left out.

    Raises OSError, and ValueError if the trace cannot be read.
    """
    try:
        answer = documents.read_json(folder / TRACE)["answer"]
        each = [answer, *filter(None, [answer.get("second")])]
        groups = [group["best"]["setting"] for part in each for group in part["groups"]]
        settings = [*(part["named"] or part["leading"] or {} for part in each), *groups]
        known = [{axis.key: setting[axis.key] for axis in axes if axis.key in setting} for setting in settings]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / TRACE} is not a search's trace ({error!r})") from error
    on_axes = [{axis.key: setting[axis.key] for axis in axes if axis.holds(setting.get(axis.key))} for setting in known]
    return [setting for place, setting in enumerate(on_axes) if setting and setting not in on_axes[:place]]


def runs_of(folder: Path, axes: Sequence[Axis], objective: str) -> list[SearchTrial]:
    """The ended runs of an earlier search that lie on these axes.

    Empty if it searched other axes or for another objective. Raises OSError, and ValueError for a malformed trace.
    """
    try:
        content = documents.read_json(folder / TRACE)
        rows = content["trials"] if content["asked"]["objective"] == objective else []
        known = [_run_of(row) for row in rows if row["run"] is not None and row["state"] in ENDED]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / TRACE} is not a search's trace ({error!r})") from error
    same_axes = all(trial.setting.keys() == {axis.key for axis in axes} for trial in known)
    return (
        [trial for trial in known if all(_lies_on(axis, trial.setting[axis.key]) for axis in axes)] if same_axes else []
    )


def highest_seed(folder: Path) -> int:
    """The highest seed of an earlier search, whatever its axes; 0 without a trial.

    Raises OSError, and ValueError for a malformed trace.
    """
    try:
        return max((int(row["seed"]) for row in documents.read_json(folder / TRACE)["trials"]), default=0)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / TRACE} is not a search's trace ({error!r})") from error


def _run_of(row: Mapping[str, Any]) -> SearchTrial:
    value, bound = (None if row.get(key) is None else float(row[key]) for key in ("value", "censored_at"))
    return SearchTrial(
        dict(row["setting"]), int(row["seed"]), EXPLORE, state=row["state"], value=value, censored_at=bound,
        interval=float(row.get("interval") or 0.0),
    )  # fmt: skip


def _lies_on(axis: Axis, value: Scalar) -> bool:
    """Whether a value lies on an axis. On an axis of listed numbers every number does, even one that is not listed."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number if axis.choices and axis.numeric else axis.holds(value)


def answer_in(folder: Path) -> dict[str, Any] | None:
    """The answer of the search in a sweep's folder, with the sweep's name; None if it is missing or unreadable."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        answer = documents.read_json(folder / TRACE)["answer"]
        return {"sweep": folder.resolve().name, **answer, "words": str(answer["words"])}  # Older ones lack the sweep.
    return None


def damage(folder: Path) -> str:
    """Why the trace of a search cannot be read; empty if it can, or if it is missing."""
    try:
        documents.read_json(folder / TRACE)["answer"]
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        return str(error)
    except (LookupError, TypeError):
        return f"{folder / TRACE}: is not a search's trace. Next: put the original file in place"
    return ""


def refused(folder: Path, axes: Sequence[Axis]) -> list[tuple[int, SearchTrial]]:
    """The trials that could not be run, each with the number of jobs before it; empty if the trace is unreadable."""
    trials: list[tuple[int, SearchTrial]] = []
    with suppress(OSError, ValueError, KeyError, TypeError):
        for place, row in enumerate(documents.read_json(folder / TRACE)["trials"]):
            setting = {axis.key: row["setting"][axis.key] for axis in axes}
            if row["run"] is None and all(axis.holds(setting[axis.key]) for axis in axes):
                trial = SearchTrial(setting, int(row["seed"]), str(row["phase"]), state="failed", refused=True)
                trials.append((place - len(trials), trial))
    return trials


def _row(trial: SearchTrial, job: Job | None) -> dict[str, Any]:
    known = {key: value for key, value in dataclasses.asdict(trial).items() if value is not None and key != "refused"}
    if job is None:
        return {"run": None, **known}
    return {"run": job.config.search.trial, "folder": job.folder.name if job.folder else None, **known}
