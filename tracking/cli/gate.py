"""python -m tracking gate: an exit code that says whether a candidate's runs are slower than a baseline's.

0 = not slower beyond the margin, 1 = slower, 2 = the runs cannot tell, or the request was refused.

JSON: `exit_code`; `metric`; `sentence`, the verdict as text, and `why`; `slowdown` with `low`, `observed` and `high`
as shares, or null; `baseline` and `candidate`, each with `values`, `given_up` (values at which runs without the target
ended), `num_diverged`, `num_finished`, `missed`, `failed` (kind: number) and `running`; `notes`, a list of sentences.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracking.base import quantities
from tracking.cli import store_options
from tracking.cli.command_type import REFUSED, Answer, Command, Refused, sentence_of, writing

if TYPE_CHECKING:
    from tracking.analysis.compare import gate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name in ("baseline", "candidate"):
        parser.add_argument(
            f"--{name}", nargs="+", required=True, metavar="RUNS", help="a sweep, an experiment, or runs: ids or names"
        )
    parser.add_argument(
        "--metric", default=quantities.TIME_TO_ACCURACY_SEC,
        help="a time, a cost, a rate, or a metric with a declared direction (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--max-slowdown", type=parse_share, required=True, metavar="3%", help="allowed slowdown")
    parser.add_argument(
        "--confidence", type=float, default=0.95, help="confidence of passing and of failing (%(default)s)"
    )
    parser.add_argument(
        "--where", nargs="+", default=[], type=parse_pair, metavar="PARAM=VALUE", help="only runs with these params"
    )
    parser.add_argument("--with-neighbours", action="store_true", help="also count runs that shared their machine")
    parser.add_argument("--paired", action="store_true", help="compare runs of the same seed in pairs")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the verdict as JUnit XML")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the verdict as Markdown")
    store_options.add_arguments(parser)


def parse_share(text: str) -> float:
    """A slowdown as a fraction, from `3%` or `0.03`."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: not a share. Allowed: a share such as 3% or 0.03") from None
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text}: out of range. Allowed: 0% to below 100%, such as 3% or 0.03")
    return value


def parse_pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text}: has no `=`. Allowed: PARAM=VALUE, such as gpus=1")
    return key, value


def run(arguments: argparse.Namespace) -> Answer:
    """The verdict. Writes the requested files also for a refusal, since a CI job shows them."""
    verdict = judge(arguments)
    is_written = write(verdict, arguments)
    if not verdict.sides:  # nothing was compared
        raise Refused(verdict.why.removeprefix("refused: "))
    return Answer(verdict.code if is_written else REFUSED, json_document(verdict), lambda: show(verdict))


def judge(arguments: argparse.Namespace) -> gate.GateVerdict:
    """The verdict on the runs; without `sides` for a refused request."""
    from tracking.analysis.compare import gate
    from tracking.store.server import TrackingRefused, TrackingUnavailable

    question = gate.Question(
        {"baseline": arguments.baseline, "candidate": arguments.candidate},
        arguments.metric, arguments.max_slowdown, arguments.confidence, arguments.where,
        arguments.with_neighbours, arguments.paired,
    )  # fmt: skip
    try:
        question.check()
        return gate.judge(store_options.open_runs(arguments), question)
    except OSError as error:
        why = sentence_of(error)
    except TrackingUnavailable as error:
        why = f"{error}. {store_options.RETRY_ADVICE}"
    except (ValueError, TrackingRefused) as error:
        why = str(error)
    return gate.GateVerdict(gate.CANNOT_TELL, arguments.metric, f"refused: {why}")


def write(verdict: gate.GateVerdict, arguments: argparse.Namespace) -> bool:
    """Write the files for CI. Returns whether that succeeded; prints the error if not."""
    from tracking.analysis.compare import gate

    try:
        if arguments.junit:
            with writing("--junit", "a file"):
                arguments.junit.write_bytes(gate.junit(verdict))
        if arguments.markdown:
            with writing("--markdown", "a file"):
                arguments.markdown.write_text(gate.markdown(verdict), encoding="utf-8")
    except Refused as error:
        print(f"refused: {error}", file=sys.stderr)
        return False
    return True


def show(verdict: gate.GateVerdict) -> None:
    from tracking.base.console import make_console

    console = make_console()
    console.print(verdict.table().rich())
    for note in verdict.notes:
        console.print(f"note: {note}", soft_wrap=True)
    console.print(verdict.sentence, soft_wrap=True)


def json_document(verdict: gate.GateVerdict) -> dict[str, Any]:
    slowdown = verdict.slowdown
    return {
        "exit_code": verdict.code,
        "metric": verdict.metric,
        "sentence": verdict.sentence,
        "why": verdict.why,
        "slowdown": dict(zip(("low", "observed", "high"), slowdown, strict=True)) if slowdown else None,
        **{name: asdict(side) for name, side in zip(("baseline", "candidate"), verdict.sides, strict=True)},
        "notes": list(verdict.notes),
    }


GATE = Command(
    "gate",
    "exit with 0 if runs are not slower than a baseline, 1 if they are, 2 if the runs cannot tell",
    add_arguments,
    run,
)
