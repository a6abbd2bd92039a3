"""The differences between runs, in stack, configuration, environment and results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from conf.schema import NOT_MEASURED
from tracking.analysis.compare.confounding import FIND_IT, has_environment
from tracking.analysis.results import NONE, Cell, Run, Runs, Table, differing, flat, relative_change
from tracking.base import quantities
from tracking.base.number_text import written_out
from tracking.record import documents as run_documents
from tracking.record import run_folder
from tracking.request import stored_config

MOST_RUNS = 8  # columns that fit beside each other
LONGEST = 60  # characters of a value, such as an uncommitted diff
# The parts of a stack, in order of display; from the fingerprint, else from the tags.
STACK = ("torch", "cudnn", "nccl", "cuda", "driver", "image")
STACK_KEYS = [key for name in STACK for key in (f"software.{name}", f"host.{name}", f"env.{name}")]


@dataclass(frozen=True)
class Differences:
    """Keys in which runs differ, with each run's value: largest relative change first; a stack in STACK's order."""

    name: str
    rows: Sequence[tuple[str, Sequence[Any]]]

    def table(self, names: Sequence[str]) -> Table:
        rows: list[list[Cell]] = [
            [key, *(shown(value) for value in values), change_words(values)] for key, values in self.rows
        ]
        return Table(self.name, {"": "", **dict.fromkeys(names, ""), "change": ""}, rows)


def chosen(store: Runs, selectors: Sequence[str]) -> list[Run]:
    """The runs in the order in which they were named. Raises ValueError for fewer than 2 or more than MOST_RUNS."""
    runs = {run.id: run for selector in selectors for run in store.find([selector])}
    if len(runs) < 2:
        raise ValueError(
            f"{' '.join(selectors)}: names {len(runs)} run, and a difference needs two. Next: name another"
        )
    if len(runs) > MOST_RUNS:
        raise ValueError(
            f"{' '.join(selectors)}: names {len(runs)} runs; at most {MOST_RUNS} fit beside each other. Next: give the"
            " ids of"
            f" a few, such as {' '.join(list(runs)[:2])}"
        )
    return list(runs.values())


def headings(runs: Sequence[Run]) -> list[str]:
    """The runs' names; names that several runs share get the beginning of the id."""
    names = [run.name for run in runs]
    return [run.name if names.count(run.name) == 1 else f"{run.name} {run.id[:8]}" for run in runs]


def differences(store: Runs, runs: Sequence[Run]) -> tuple[list[Differences], list[str]]:
    """The groups of differences, empty ones too, and notes on what could not be read.

    The stack comes first. If it differs, the results are next, since they show its effect.
    """
    notes: list[str] = []
    config = documents(store, runs, run_folder.CONFIG, notes)
    for content in config or ():
        for key in NOT_MEASURED:
            content.pop(key, None)
    fingerprints = documents(store, runs, run_folder.FINGERPRINT, notes)
    blank = [run.name for run in runs if not has_environment(run)]
    if blank and fingerprints is None:
        notes.append(f"{', '.join(blank)}: no env.* tags either, so the GPU, driver and CUDA are not known")
    params = [dict(run.params) for run in runs]
    tags = [
        {key: value for key, value in run.tags.items() if key.startswith(("env.", "git.", "timetrial.commit"))}
        for run in runs
    ]
    data = [{key: value for key, value in run.tags.items() if key.startswith("data.")} for run in runs]
    surroundings = [flat(content, into_lists=True) for content in fingerprints or tags]
    metrics = [{"status": run.status, "failure": run.failure, **run.metrics} for run in runs]
    results = [{key: val for key, val in values.items() if not key.startswith(quantities.SYSTEM)} for values in metrics]
    system = [{key: value for key, value in values.items() if key.startswith(quantities.SYSTEM)} for values in metrics]
    environment = dict(differing([values | version for values, version in zip(surroundings, data, strict=True)]))
    stack = Differences("stack", [(key, environment.pop(key)) for key in STACK_KEYS if key in environment])
    inputs = [
        Differences("configuration", differing([flat(content, into_lists=True) for content in config or params])),
        Differences("environment", list(environment.items())),
    ]
    outcomes = [Differences("results", differing(results))]
    middle = [*outcomes, *inputs] if stack.rows else [*inputs, *outcomes]
    return [stack, *middle, Differences("system metrics, last values", differing(system))], notes


def documents(store: Runs, runs: Sequence[Run], name: str, notes: list[str]) -> list[dict[str, Any]] | None:
    """A file of each run, parsed. None and a note if a run has no such file: then params or tags are compared."""
    contents = []
    for run in runs:
        try:
            text = store.text(run, name)
            contents.append(dict(run_documents.parsed(text) if name.endswith(".json") else stored_config.loaded(text)))
        except (OSError, ValueError, TypeError) as error:
            substitute = "params" if name == run_folder.CONFIG else "tags"
            has = "has no" if isinstance(error, FileNotFoundError) else "has a damaged"
            notes.append(f"{run.name} {has} {name}; compared by {substitute} instead, which hold fewer keys. {FIND_IT}")
            return None
    return contents


def change_words(values: Sequence[Any]) -> str:
    change = relative_change(values)
    if change is None:
        return ""
    return "from 0" if change == float("inf") else f"{change:+.1%}"


def shown(value: Any) -> str:
    if isinstance(value, float):
        return written_out(f"{value:,.6g}", value)
    text = NONE if value is None else " ".join(str(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
