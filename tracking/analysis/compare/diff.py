"""What differs between runs, in stack, configuration, environment and results, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from conf.schema import NOT_MEASURED
from tracking.analysis.compare.confounding import FIND_IT, has_environment
from tracking.analysis.results import NONE, Cell, Run, Runs, Table, differing, flat, relative_change
from tracking.base import quantities
from tracking.record import documents as run_documents
from tracking.record import run_folder
from tracking.request import stored_config

MOST_RUNS = 8  # columns that can be read beside each other
LONGEST = 60  # characters of a value, such as an uncommitted diff
# What makes a stack, in the order in which it is told; of a fingerprint, else of the tags.
STACK = ("torch", "cudnn", "nccl", "cuda", "driver", "image")
STACK_KEYS = [key for name in STACK for key in (f"software.{name}", f"host.{name}", f"env.{name}")]


@dataclass(frozen=True)
class Differences:
    """Keys in which runs differ: the value of each run, biggest relative change first, of a stack in STACK's order."""

    name: str
    rows: Sequence[tuple[str, Sequence[Any]]]

    def table(self, names: Sequence[str]) -> Table:
        rows: list[list[Cell]] = [
            [key, *(shown(value) for value in values), change_words(values)] for key, values in self.rows
        ]
        return Table(self.name, {"": "", **dict.fromkeys(names, ""), "change": ""}, rows)


def chosen(store: Runs, selectors: Sequence[str]) -> list[Run]:
    """The runs in the order in which they were named. Raises ValueError for one alone, or more than can be read."""
    runs = {run.id: run for selector in selectors for run in store.find([selector])}
    if len(runs) < 2:
        raise ValueError(f"{' '.join(selectors)}: names {len(runs)} run, and a difference takes two; give another one")
    if len(runs) > MOST_RUNS:
        raise ValueError(
            f"{' '.join(selectors)}: names {len(runs)} runs, and up to {MOST_RUNS} can be read beside each other; give"
            f" the ids of a few, such as {' '.join(list(runs)[:2])}"
        )
    return list(runs.values())


def headings(runs: Sequence[Run]) -> list[str]:
    """The runs' names, with the beginning of the id where the name is not of one run alone."""
    names = [run.name for run in runs]
    return [run.name if names.count(run.name) == 1 else f"{run.name} {run.id[:8]}" for run in runs]


def differences(store: Runs, runs: Sequence[Run]) -> tuple[list[Differences], list[str]]:
    """The groups, those without a difference too, and notes on what could not be read.

    The stack comes first; where it differs, what it did is next.
    """
    notes: list[str] = []
    config = documents(store, runs, run_folder.CONFIG, notes)
    for content in config or ():
        for key in NOT_MEASURED:
            content.pop(key, None)
    fingerprints = documents(store, runs, run_folder.FINGERPRINT, notes)
    blank = [run.name for run in runs if not has_environment(run)]
    if blank and fingerprints is None:
        notes.append(f"{', '.join(blank)}: no env.* tags either, so that it is not known what this ran on")
    params = [dict(run.params) for run in runs]
    tags = [
        {key: value for key, value in run.tags.items() if key.startswith(("env.", "git.", "timetrial.commit"))}
        for run in runs
    ]
    data = [{key: value for key, value in run.tags.items() if key.startswith("data.")} for run in runs]
    surroundings = [flat(content, into_lists=True) for content in fingerprints or tags]
    metrics = [{"status": run.status, "failure": run.failure, **run.metrics} for run in runs]
    own = [{key: value for key, value in values.items() if not key.startswith(quantities.SYSTEM)} for values in metrics]
    system = [{key: value for key, value in values.items() if key.startswith(quantities.SYSTEM)} for values in metrics]
    around = dict(differing([values | version for values, version in zip(surroundings, data, strict=True)]))
    stack = Differences("stack", [(key, around.pop(key)) for key in STACK_KEYS if key in around])
    asked = [
        Differences("configuration", differing([flat(content, into_lists=True) for content in config or params])),
        Differences("environment", list(around.items())),
    ]
    came_to = [Differences("results", differing(own))]
    middle = [*came_to, *asked] if stack.rows else [*asked, *came_to]
    return [stack, *middle, Differences("system metrics, last values", differing(system))], notes


def documents(store: Runs, runs: Sequence[Run], name: str, notes: list[str]) -> list[dict[str, Any]] | None:
    """A file of each run, parsed; None, and a note, where one has none: then all are read from what all have."""
    contents = []
    for run in runs:
        try:
            text = store.text(run, name)
            contents.append(dict(run_documents.parsed(text) if name.endswith(".json") else stored_config.loaded(text)))
        except (OSError, ValueError, TypeError) as error:
            less = "params" if name == run_folder.CONFIG else "tags"
            has = "has no" if isinstance(error, FileNotFoundError) else "has a damaged"
            notes.append(f"{run.name} {has} {name}; compared by {less} instead, which hold less. {FIND_IT}")
            return None
    return contents


def change_words(values: Sequence[Any]) -> str:
    change = relative_change(values)
    if change is None:
        return ""
    return "from 0" if change == float("inf") else f"{change:+.1%}"


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    text = NONE if value is None else " ".join(str(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
