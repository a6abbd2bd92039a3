"""python -m tracking diff: only the differences between runs, first in their stacks; or in their kernels.

JSON: `runs`, each with `id` and `name`, in the order of all values; `groups`, each with `name` and `rows`; a row has
`key`, `values` (null if a run has no value) and `change` (from the first value to the last, as a share; null if they
are not numbers, or from 0); `notes`, a list of sentences. With --kernels, in place of `groups`: a `sentence`;
`kernels` and `classes`, rows with `name`, `class`, `shared`, and `ms`, `share` and `calls` of each run, or null;
`gaps`, rows with `host`, `phase`, `ms` and `share`; `steps` with `step_ms` and `busy_ms` of each run.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tracking.cli import store_options
from tracking.cli.command_type import SUCCESS, Answer, Command, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracking.analysis.compare import diff, kernel_diff
    from tracking.analysis.results import Run, Runs

MAX_KERNELS = 20  # rows of a table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="ids, names or folders of runs, or a small sweep")
    parser.add_argument("--kernels", action="store_true", help="compare the profiles of two runs (profile=true)")
    store_options.add_arguments(parser)


def run(arguments: argparse.Namespace) -> Answer:
    """The differences. Raises Refused or ValueError if the runs cannot be read or compared."""
    from tracking.analysis.compare import diff
    from tracking.store.server import TrackingUnavailable

    try:
        store = store_options.open_runs(arguments)
        runs = diff.chosen(store, arguments.runs)
        if arguments.kernels:
            return kernel_answer(store, runs)
        groups, notes = diff.differences(store, runs)
    except TrackingUnavailable as error:
        raise Refused(f"{error}. {store_options.RETRY_ADVICE}") from error
    return Answer(SUCCESS, json_document(runs, groups, notes), lambda: show(runs, groups, notes))


def kernel_answer(store: Runs, runs: Sequence[Run]) -> Answer:
    """The differences between the kernels of two runs. Raises ValueError if they were not traced."""
    from tracking.analysis.compare import kernel_diff

    difference, notes = kernel_diff.kernel_diff(store, runs)

    def rows(group: Sequence[kernel_diff.KernelRow]) -> list[dict[str, Any]]:
        return [{"name": row.name, "class": row.kind, "shared": row.shared, **row.values} for row in group]

    document = {
        "runs": [{"id": run.id, "name": run.name} for run in runs],
        "sentence": difference.sentence(),
        "steps": [{"step_ms": step, "busy_ms": busy} for step, busy in difference.steps],
        "per_step": list(difference.marked),  # False: step_ms, ms and calls are of the whole trace
        "kernels": rows(difference.rows),
        "classes": rows(difference.classes),
        "gaps": [{"host": row.name, "phase": row.kind, **row.values} for row in difference.gaps],
        "notes": notes,
    }
    return Answer(SUCCESS, document, lambda: show_kernels(runs, difference, notes))


def show_kernels(runs: Sequence[Run], difference: kernel_diff.KernelDiff, notes: Sequence[str]) -> None:
    from tracking.analysis.compare import diff
    from tracking.base.console import make_console

    console = make_console()
    for letter, name in zip("AB", diff.headings(runs), strict=True):
        console.print(f"{letter}: {name}", soft_wrap=True)
    for sentence in (difference.pace(), difference.sentence()):
        console.print(sentence, soft_wrap=True)
    for table in difference.tables(MAX_KERNELS):
        console.print(table.rich())
    for note in notes:
        console.print(f"note: {note}", soft_wrap=True)


def show(runs: Sequence[Run], groups: Sequence[diff.Differences], notes: Sequence[str]) -> None:
    from tracking.analysis.compare import diff
    from tracking.base.console import make_console

    console = make_console()
    for group in groups:
        if group.rows:
            console.print(group.table(diff.headings(runs)).rich())
        else:
            console.print(f"{group.name}: no difference")
    for note in notes:
        console.print(f"note: {note}", soft_wrap=True)


def json_document(runs: Sequence[Run], groups: Sequence[diff.Differences], notes: Sequence[str]) -> dict[str, Any]:
    from tracking.analysis.results import relative_change

    def row(key: str, values: Sequence[Any]) -> dict[str, Any]:
        return {"key": key, "values": list(values), "change": relative_change(values)}

    return {
        "runs": [{"id": run.id, "name": run.name} for run in runs],
        "groups": [{"name": group.name, "rows": [row(*pair) for pair in group.rows]} for group in groups],
        "notes": list(notes),
    }


DIFF = Command("diff", "show only the differences between runs", add_arguments, run)
