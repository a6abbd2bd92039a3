"""python -m tracking gate: an exit code on whether a candidate's runs are slower than a baseline's.

0 = not slower beyond the margin, 1 = slower, 2 = the runs cannot tell, or the request cannot be answered.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.console import Console

from tracking.compare import confounding
from tracking.compare.grouping import LIKELY, Values
from tracking.compare.metric_direction import has_slowdown
from tracking.compare.non_inferiority import CANNOT_TELL, NOT_SLOWER, SLOWER, Verdict, check_metric, decide, side_of
from tracking.results import NONE, REPEATS, WORKLOAD, Run, Runs, differing, make_console, store_options


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "gate", help="exit code 0 where runs are not slower than others, 1 where they are, 2 where they cannot tell"
    )
    for name in ("baseline", "candidate"):
        parser.add_argument(
            f"--{name}", nargs="+", required=True, metavar="RUNS", help="a sweep, an experiment, or runs: ids or names"
        )
    parser.add_argument("--metric", default="time/to_accuracy_sec", help="a time, a cost or a rate (%(default)s)")
    parser.add_argument("--max-slowdown", type=share, required=True, metavar="3%", help="slowdown that is allowed")
    parser.add_argument("--confidence", type=float, default=0.95, help="of passing and of failing (%(default)s)")
    parser.add_argument(
        "--where", nargs="+", default=[], type=pair, metavar="PARAM=VALUE", help="only the runs with these params"
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the verdict as JUnit XML")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the verdict as Markdown")
    store_options.add_arguments(parser)
    parser.set_defaults(command_function=command)


def share(text: str) -> float:
    """A slowdown as a share of one: `3%` or `0.03`."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: give a share such as 3% or 0.03") from None
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a share from 0% to below 100%, such as 3% or 0.03")
    return value


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text}: give PARAM=VALUE, such as gpus=1")
    return key, value


def command(arguments: argparse.Namespace) -> int:
    from tracking.mirror import TrackingRefused, TrackingUnavailable

    try:
        verdict = judge(arguments)
    except (ValueError, TrackingRefused, TrackingUnavailable) as error:
        again = f"; {store_options.AGAIN}" if isinstance(error, TrackingUnavailable) else ""
        verdict = Verdict(CANNOT_TELL, arguments.metric, f"refused: {error}{again}")
    console = make_console()
    if verdict.sides:
        console.print(verdict.table().rich())
    for note in verdict.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    # What was refused goes where errors go; a verdict is what was asked for.
    (console if verdict.sides else Console(stderr=True)).print(verdict.sentence, markup=False, soft_wrap=True)
    try:
        if arguments.junit:
            arguments.junit.write_bytes(junit(verdict))
        if arguments.markdown:
            arguments.markdown.write_text(markdown(verdict), encoding="utf-8")
    except OSError as error:
        print(f"refused: {error}; give a file that can be written", file=sys.stderr)
        return CANNOT_TELL
    return verdict.code


def judge(arguments: argparse.Namespace) -> Verdict:
    """Read the runs of both sides and decide. Raises ValueError for what cannot be compared."""
    if not 0.5 < arguments.confidence < 1:
        raise ValueError(f"--confidence {arguments.confidence:g}: give a number above 0.5 and below 1, such as 0.95")
    check_metric(arguments.metric)
    store = store_options.open_runs(arguments)
    sides = {}
    for name in ("baseline", "candidate"):
        selectors = getattr(arguments, name)
        found = store.find(selectors)
        sides[name] = [run for run in found if all(run.params.get(key) == value for key, value in arguments.where)]
        if not sides[name]:
            wanted = " ".join(f"{key}={value}" for key, value in arguments.where)
            raise ValueError(f"--{name} {' '.join(selectors)}: none of {len(found)} runs has {wanted}")
    check_sides(sides, arguments.metric)
    baseline, candidate = (side_of(runs, arguments.metric) for runs in sides.values())
    verdict = decide(baseline, candidate, arguments.metric, arguments.max_slowdown, arguments.confidence)
    notes = [*verdict.notes, *confounds(store, sides)]
    return replace(verdict, notes=notes)


def check_sides(sides: Mapping[str, Sequence[Run]], metric: str) -> None:
    """Raise ValueError where a run is on both sides, a side mixes settings, the workloads differ or none has the
    metric."""
    baseline, candidate = sides.values()
    both = {run.id for run in baseline} & {run.id for run in candidate}
    if both:
        name = next(run.name for run in baseline if run.id in both)
        raise ValueError(f"{name} and {len(both) - 1} more are on both sides; give each side runs of its own")
    for name, runs in sides.items():
        params = [{key: value for key, value in run.params.items() if key not in REPEATS} for run in runs]
        mixed = {key: list(dict.fromkeys(values)) for key, values in sorted(differing(params), key=by_likelihood)}
        if mixed:
            shown = "; ".join(f"{key}: {', '.join(values)}" for key, values in mixed.items())
            key, values = next(iter(mixed.items()))
            raise ValueError(
                f"--{name}: holds runs of several settings ({shown}), whose mean says nothing; name the runs of one, or"
                f" give --where {key}={values[0]}"
            )
    for key in WORKLOAD:
        ours, theirs = (runs[0].params.get(key, NONE) for runs in (baseline, candidate))
        if ours != theirs:
            raise ValueError(
                f"the sides train different workloads ({key}: {ours} and {theirs}); give runs of the same model,"
                " dataset and target"
            )
    everything = [*baseline, *candidate]
    reachable = "to_accuracy" in metric and any(run.missed for run in everything)
    if (
        not reachable
        and any(run.finished for run in everything)
        and not any(metric in run.metrics for run in everything)
    ):
        there = sorted({key for run in everything for key in run.metrics if has_slowdown(key)})
        raise ValueError(f"--metric {metric}: no run has it; there are: {', '.join(there) or '(none)'}")


def by_likelihood(row: tuple[str, Any]) -> int:
    """What was most likely varied on purpose comes first, before what follows from it."""
    return LIKELY.index(row[0]) if row[0] in LIKELY else len(LIKELY)


def confounds(store: Runs, sides: Mapping[str, Sequence[Run]]) -> list[str]:
    """What differs between the sides, and among the runs of one, besides the metric."""
    finished = {name: [run for run in runs if run.finished] for name, runs in sides.items()}
    everything = [run for runs in sides.values() for run in runs]
    return confounding.differences(finished, (), store, Values(store, everything))


def markdown(verdict: Verdict) -> str:
    mark = {NOT_SLOWER: "✅", SLOWER: "❌", CANNOT_TELL: "❔"}[verdict.code]
    notes = "".join(f"- {note}\n" for note in verdict.notes)
    table = verdict.table().markdown() if verdict.sides else ""
    return f"{mark} {verdict.sentence}\n" + (f"\n{table}" if table else "") + (f"\n{notes}" if notes else "")


def junit(verdict: Verdict) -> bytes:
    """One test case, which fails where the candidate is slower and has an error where the runs cannot tell."""
    counts = {
        "tests": "1",
        "failures": str(int(verdict.code == SLOWER)),
        "errors": str(int(verdict.code == CANNOT_TELL)),
    }
    suite = ElementTree.Element("testsuite", {"name": "timetrial gate"} | counts)
    case = ElementTree.SubElement(suite, "testcase", {"classname": "timetrial.gate", "name": verdict.metric})
    if verdict.code != NOT_SLOWER:
        kind = "failure" if verdict.code == SLOWER else "error"
        ElementTree.SubElement(case, kind, {"message": verdict.sentence}).text = "\n".join(verdict.notes)
    ElementTree.SubElement(case, "system-out").text = markdown(verdict)
    return ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
