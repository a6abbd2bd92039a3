"""python -m tracking mlperf: MLPerf's score of runs, from their mlperf.log.

JSON: `scores`, each with `setting` (the runs' setting in the logs, as texts), `num_needed` (0 if the benchmark's rules
are not known), `num_missing`, `num_missed`, `convergence` (null without --rcp; else `epochs`, `batch`, `ruleset`,
`reference`, `least`, `good`, each null if not known, and `verdict`), `seconds` (the olympic mean, or null), `verdict`,
`runs` (`name`, `seconds`, `reached`) and `left_out`, a list of names; `without_log`, the names of runs without a log.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracking.cli import store_options
from tracking.cli.command_type import FAILURE, SUCCESS, Answer, Command, Refused

if TYPE_CHECKING:
    from tracking.analysis.mlperf import Convergence, Score
    from tracking.analysis.results import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUNS", help="a sweep, an experiment, a run's id, name or folder")
    parser.add_argument(
        "--rcp", action="store_true", help="check the epochs against MLPerf's reference convergence points"
    )
    store_options.add_arguments(parser)


def run(arguments: argparse.Namespace) -> Answer:
    """Exit code 0 if every setting has a score; 1 if one has no score, or with --rcp has implausibly few epochs.

    Raises ValueError if no run has a log.
    """
    from tracking.analysis import mlperf
    from tracking.store.server import TrackingUnavailable

    logs: list[tuple[str, str, dict[str, str]]] = []
    without_log: list[str] = []
    try:
        store = store_options.open_runs(arguments)
        for selected in store.find(arguments.runs):
            try:
                if not selected.uncounted:
                    logs.append((selected.name, store.text(selected, mlperf.LOG), facts_outside_log(selected)))
            except FileNotFoundError:
                without_log.append(selected.name)
    except TrackingUnavailable as error:
        raise Refused(f"{error}. {store_options.RETRY_ADVICE}") from error
    if not logs:
        raise ValueError(
            f"{' '.join(arguments.runs)}: no run with a {mlperf.LOG} found. Next: give finished runs of resnet50, ssd,"
            " maskrcnn, transformer or gnmt that had a target and were not resumed"
        )
    scores = mlperf.scores(logs)
    convergences = [mlperf.convergence(score) for score in scores] if arguments.rcp else [None] * len(scores)
    all_scored = all(score.seconds is not None for score in scores)
    all_plausible = all(convergence is None or convergence.good is not False for convergence in convergences)
    code = SUCCESS if all_scored and all_plausible else FAILURE
    rows = [*zip(scores, convergences, strict=True)]
    document = {"scores": [json_row(*row) for row in rows], "without_log": without_log}
    return Answer(code, document, lambda: show(rows, without_log))


def facts_outside_log(run: Run) -> dict[str, str]:
    """Benchmark and number of devices of an imported run, which its log may lack; empty for other runs."""
    if "import.sha256" not in run.tags:
        return {}
    return {"submission_benchmark": run.tags.get("program.benchmark", ""), "gpus": str(run.params.get("gpus", ""))}


def show(rows: Sequence[tuple[Score, Convergence | None]], without_log: Sequence[str]) -> None:
    from tracking.base.console import make_console

    console = make_console()
    for score, convergence in rows:
        setting = score.setting
        parts = [setting["submission_benchmark"], setting.get("submission_division")]
        batch = setting.get("global_batch_size")
        parts += [
            setting.get("submission_platform"),
            setting.get("precision"),
            f"global batch {batch}" if batch else None,
        ]
        console.print(f"{', '.join(word for word in parts if word)}: {score.verdict}", markup=False, soft_wrap=True)
        for scored_run in score.counted:
            suffix = "" if scored_run.reached else ", target missed"
            console.print(f"  {scored_run.name}: {scored_run.seconds:,.2f} s{suffix}", markup=False, soft_wrap=True)
        if convergence:
            console.print(f"  {convergence.verdict}", markup=False, soft_wrap=True)
        if score.left_out:
            names = ", ".join(scored_run.name for scored_run in score.left_out)
            console.print(f"  left out, since they started later: {names}", markup=False, soft_wrap=True)
    if without_log:
        console.print(f"no MLPerf log: {', '.join(without_log)}", markup=False, soft_wrap=True)


def json_row(score: Score, convergence: Convergence | None) -> dict[str, Any]:
    keys = ("epochs", "batch", "ruleset", "reference", "least", "good", "verdict")
    return {
        "setting": score.setting,
        "num_needed": score.num_needed,
        "num_missing": score.num_missing,
        "num_missed": score.num_missed,
        "convergence": None if convergence is None else {key: getattr(convergence, key) for key in keys},
        "seconds": score.seconds,
        "verdict": score.verdict,
        "runs": [{"name": each.name, "seconds": each.seconds, "reached": each.reached} for each in score.counted],
        "left_out": [each.name for each in score.left_out],
    }


MLPERF = Command("mlperf", "score runs by MLPerf's rules, or say how many are missing", add_arguments, run)
