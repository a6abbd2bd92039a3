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
from tracking.cli.command_type import WELL, WRONG, Answer, Command, Refused

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
    without: list[str] = []
    try:
        store = store_options.open_runs(arguments)
        for each in store.find(arguments.runs):
            try:
                if not each.uncounted:
                    logs.append((each.name, store.text(each, mlperf.LOG), unsaid_in_log(each)))
            except FileNotFoundError:
                without.append(each.name)
    except TrackingUnavailable as error:
        raise Refused(f"{error}. {store_options.AGAIN}") from error
    if not logs:
        raise ValueError(
            f"{' '.join(arguments.runs)}: no run with a {mlperf.LOG} found. Next: give finished runs of resnet50, ssd,"
            " maskrcnn, transformer or gnmt that had a target and were not resumed"
        )
    scores = mlperf.scores(logs)
    checked = [mlperf.convergence(score) for score in scores] if arguments.rcp else [None] * len(scores)
    scored = all(score.seconds is not None for score in scores)
    code = WELL if scored and all(each is None or each.good is not False for each in checked) else WRONG
    rows = [*zip(scores, checked, strict=True)]
    document = {"scores": [plain(*row) for row in rows], "without_log": without}
    return Answer(code, document, lambda: show(rows, without))


def unsaid_in_log(run: Run) -> dict[str, str]:
    """Benchmark and number of devices of an imported run, which its log may lack; empty for other runs."""
    if "import.sha256" not in run.tags:
        return {}
    return {"submission_benchmark": run.tags.get("program.benchmark", ""), "gpus": str(run.params.get("gpus", ""))}


def show(rows: Sequence[tuple[Score, Convergence | None]], without: Sequence[str]) -> None:
    from tracking.base.console import make_console

    console = make_console()
    for score, checked in rows:
        setting = score.setting
        words = [setting["submission_benchmark"], setting.get("submission_division")]
        batch = setting.get("global_batch_size")
        words += [
            setting.get("submission_platform"),
            setting.get("precision"),
            f"global batch {batch}" if batch else None,
        ]
        console.print(f"{', '.join(word for word in words if word)}: {score.verdict}", markup=False, soft_wrap=True)
        for each in score.counted:
            missed = "" if each.reached else ", target missed"
            console.print(f"  {each.name}: {each.seconds:,.2f} s{missed}", markup=False, soft_wrap=True)
        if checked:
            console.print(f"  {checked.verdict}", markup=False, soft_wrap=True)
        if score.left_out:
            names = ", ".join(each.name for each in score.left_out)
            console.print(f"  left out, since they started later: {names}", markup=False, soft_wrap=True)
    if without:
        console.print(f"no MLPerf log: {', '.join(without)}", markup=False, soft_wrap=True)


def plain(score: Score, checked: Convergence | None) -> dict[str, Any]:
    keys = ("epochs", "batch", "ruleset", "reference", "least", "good", "verdict")
    return {
        "setting": score.setting,
        "num_needed": score.num_needed,
        "num_missing": score.num_missing,
        "num_missed": score.num_missed,
        "convergence": None if checked is None else {key: getattr(checked, key) for key in keys},
        "seconds": score.seconds,
        "verdict": score.verdict,
        "runs": [{"name": each.name, "seconds": each.seconds, "reached": each.reached} for each in score.counted],
        "left_out": [each.name for each in score.left_out],
    }


MLPERF = Command("mlperf", "score runs by MLPerf's rules, or say how many are missing", add_arguments, run)
