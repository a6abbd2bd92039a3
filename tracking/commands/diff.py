"""python -m tracking diff: what differs between runs, in their stacks first, and nothing else.

JSON: `runs`, each with `id` and `name`, in the order of all values; `groups`, each with `name` and `rows`, a row with
`key`, `values` (null where a run has none) and `change` (of the last value against the first, as a share; null where
it is no number, or from 0); `notes`, sentences.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tracking.commands import store_options
from tracking.commands.command import WELL, Answer, Command, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracking.compare import diff
    from tracking.results import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="ids, names or folders of runs, or a sweep of a few")
    store_options.add_arguments(parser)


def run(arguments: argparse.Namespace) -> Answer:
    """The differences; refused where the runs cannot be compared or read."""
    from tracking.compare import diff
    from tracking.server import TrackingUnavailable

    try:
        store = store_options.open_runs(arguments)
        runs = diff.chosen(store, arguments.runs)
        groups, notes = diff.differences(store, runs)
    except TrackingUnavailable as error:
        raise Refused(f"refused: {error}; {store_options.AGAIN}") from error
    return Answer(WELL, plain(runs, groups, notes), lambda: show(runs, groups, notes))


def show(runs: Sequence[Run], groups: Sequence[diff.Differences], notes: Sequence[str]) -> None:
    from tracking.compare import diff
    from tracking.terminal import make_console

    console = make_console()
    for group in groups:
        if group.rows:
            console.print(group.table(diff.headings(runs)).rich())
        else:
            console.print(f"{group.name}: no difference")
    for note in notes:
        console.print(f"note: {note}", soft_wrap=True)


def plain(runs: Sequence[Run], groups: Sequence[diff.Differences], notes: Sequence[str]) -> dict[str, Any]:
    from tracking.results import relative_change

    def row(key: str, values: Sequence[Any]) -> dict[str, Any]:
        return {"key": key, "values": list(values), "change": relative_change(values)}

    return {
        "runs": [{"id": run.id, "name": run.name} for run in runs],
        "groups": [{"name": group.name, "rows": [row(*pair) for pair in group.rows]} for group in groups],
        "notes": list(notes),
    }


DIFF = Command("diff", "what differs between runs, and nothing else", add_arguments, run)
