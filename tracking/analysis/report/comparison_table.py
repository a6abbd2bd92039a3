"""The table of pairs of settings: whether they differ, by what factor, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracking.analysis.compare import ALPHA, UNTIL_CENSORED, Comparison, Task, best, factors, runs_that_would_tell
from tracking.analysis.report import sentences
from tracking.analysis.report.sentences import Sentence
from tracking.analysis.report.setting_tables import REACHED, shown_share
from tracking.analysis.results import Cell, Table
from tracking.analysis.statistics import POWER
from tracking.base.number_text import counted, significant

MOST_PAIRS = 15  # shown; every pair is in the CSV and JSON
SHARES_TOO = "How often settings reach the target is compared by Fisher's exact test, corrected alike. "
BY_SEED = " Paired by seed: of the differences between runs of the same seed."
RATE_TOO = " A time is evaluations x the time of one: both are tested, each with Holm's correction over the pairs."
AT_LEAST = " ≥: at least, since runs of the worse setting did not reach the target."
LOST = " ≥: at least, since it became NaN in runs of the worse setting."
WOULD_TELL = (
    f" Runs that would tell: a difference as large as this one, in {POWER:.0%} of cases; in brackets, where the spread "
    "is as large as these runs allow."
)


def comparison_table(task: Task, metric: str, pairs: Sequence[Comparison]) -> tuple[Table, list[Sentence]]:
    """The table of all pairs, or of the best with each other setting if they are many; a sentence on every pair."""
    shown = list(pairs)
    note = f"A t-test of {metric} (docs/report.md); Holm's correction over {counted(len(pairs), 'pair')}."
    note += BY_SEED if any(pair.paired for pair in pairs) else ""
    if metric in UNTIL_CENSORED:
        missed = any(setting.num_missed or setting.stopped for setting in task.settings)
        note += f" {SHARES_TOO if missed else ''}{REACHED}"
    if len(pairs) > MOST_PAIRS:
        leader = best(task, metric)
        shown = [pair for pair in pairs if leader in (pair.better, pair.worse)]
        note += " Shown: the best mean against each other; all pairs are in the JSON."
    level = ALPHA / (2 * max(1, sum(pair.p is not None for pair in pairs)))
    said = [[sentences.verdict(task.title, metric, pair) for pair in pairs]]
    said.append([words for pair in pairs if (words := sentences.more_often(task.title, metric, pair))])
    rows, repeats = [], []
    of_times = factors(pairs, metric)
    parts = {(each.pair.better.name, each.pair.worse.name): sentences.factors(task.title, each) for each in of_times}
    note += RATE_TOO if parts else ""
    for pair in sorted(shown, key=lambda pair: pair.factor):
        cells, would_tell = _row(task, metric, pair, level, parts.get((pair.better.name, pair.worse.name)))
        rows.append(cells)
        repeats += would_tell
    shares = ["reached"] if metric in UNTIL_CENSORED else []
    columns = {"better mean": "", "worse mean": "", **dict.fromkeys(shares, "")}
    columns |= {"factor": "{:.3g}", "p": "{:.2g}", "p, corrected": "{:.2g}", "so": ""}
    note += (AT_LEAST if metric in UNTIL_CENSORED else LOST) if any(pair.at_least for pair in shown) else ""
    note += WOULD_TELL if repeats else ""
    table = Table(f"{task.title}: which differ", columns, rows, note, "pairs", task.title)
    return table, [*said[0], *said[1], *parts.values(), *repeats]


def _row(
    task: Task, metric: str, pair: Comparison, level: float, parts: Sentence | None
) -> tuple[list[Any], list[Sentence]]:
    """The cells of a pair, and the sentence on how many runs would tell, if these do not."""
    words = [sentences.verdict(task.title, metric, pair), sentences.more_often(task.title, metric, pair)]
    needed = None if pair.told_apart else runs_that_would_tell(pair, metric, level)
    repeats = [sentences.runs_that_would_tell(task.title, metric, pair, needed)] if needed else []
    so = "".join(sentence.text for sentence in (*words, parts, *repeats) if sentence)
    shares = [f"{shown_share(pair.better)} against {shown_share(pair.worse)}"] if metric in UNTIL_CENSORED else []
    factor: Cell = None if math.isinf(pair.factor) else pair.factor
    factor = f"≥ {significant(pair.factor)}" if pair.at_least else factor
    return [pair.better.name, pair.worse.name, *shares, factor, pair.p, pair.adjusted, so], repeats
