"""The words of a search: its first line, its answer, and the table of its finalists."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain

from rich.table import Table

from conf.launch_options import SearchConfig
from tracking.analysis.search import Answer, Figure, Ratio, Scalar, key_of
from tracking.base.number_text import counted, epoch_text, significant
from tracking.jobs.plan import Job
from tracking.jobs.search.fronts import Point, front_of
from tracking.jobs.search.setting_means import Means, times
from tracking.request.search_options import Budget

LABELS = {"time": "time to accuracy (s)", "cost": "cost to accuracy (USD)", "energy": "energy to accuracy (J)"}
UNITS = {"time": "s", "cost": "USD", "energy": "J"}
BETTER = {"time": "as fast", "cost": "as cheap", "energy": "as sparing of energy"}
BEST = {"time": "quickest", "cost": "cheapest", "energy": "least energy"}
ENDS = {
    "reached": "reached the target",
    "stopped": "stopped at a cap",
    "missed": "without the target",
    "failed": "failed",
}
NOTHING_COMPARED = "nothing compared"
REACH_MORE = "Give more epochs (max_epochs), a lower target, or other axes."
LEAST_CORRECTION = 0.001  # smallest correction of a mean that is printed, as a share of the mean


def begins(search: SearchConfig, objectives: Sequence[str], only_decides: bool, jobs: Sequence[Job]) -> str:
    """The first line of a search that begins or continues with its jobs."""
    what = "repeated until decided" if only_decides else f"a search for the least {' and the least '.join(objectives)}"
    num_ended = sum(job.result is not None for job in jobs)
    num_queued = sum(job.result is None and job.folder is not None for job in jobs)  # An earlier launcher's.
    made = f", {counted(num_ended, 'run')} made" if num_ended else ""
    followed = f", following {counted(num_queued, 'job')} in the queue" if num_queued else ""
    return f"{what} over {' '.join(search.axes)}, in {search.budget}{made}{followed}"


def text(
    answers: Sequence[Answer], objectives: Sequence[str], budget: Budget, means: Means, points: Sequence[Point]
) -> str:
    """The answer in words: the setting, its figure, how it compares, and what the search cost.

    `points` are the decided settings by both objectives, if there are two.
    """
    first, words = answers[0], list[str]()
    if len(answers) > 1 and any(answer.named for answer in answers):
        for answer, objective in zip(answers, objectives, strict=True):
            words += [f"{BEST[objective].capitalize()}:", *_verdict(answer, objective), *_ratios(answer, objective, {})]
        words += _front(points, objectives)
    else:
        words = [
            *_verdict(first, objectives[0]),
            *_ratios(first, objectives[0], means if objectives[0] == "time" else {}),
        ]
    return " ".join([*words, _spent(first, budget)])


def _front(points: Sequence[Point], objectives: Sequence[str]) -> list[str]:
    """`The front: gpus=4 (9.1 s, 0.04 USD); gpus=1 (23 s, 0.02 USD).`"""
    units = [UNITS[objective] for objective in objectives]
    settings = []
    for point in front_of(points):
        first, second = significant(point.first, 4), significant(point.second, 4)
        settings.append(f"{setting_text(point.trial.setting)} ({first} {units[0]}, {second} {units[1]})")
    return [f"The front (no decided setting beats these in both): {'; '.join(settings)}."] if settings else []


def setting_text(setting: Mapping[str, Scalar]) -> str:
    """`gpus=4 batch_size=8 lr=0.014`: each key by its last part."""
    return " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in setting.items()) or "the one setting"


def figure_text(figure: Figure, objective: str) -> str:
    """`9.1 s (8.8 to 9.4, n = 5)`."""
    if figure.mean is None:
        return f"not reached in {counted(figure.n, 'run')}"
    between = f"{interval}, " if (interval := _interval(figure)) else ""
    short = f", {figure.num_short} of them without the target" if figure.num_short else ""
    return f"{significant(figure.mean, 4)} {UNITS[objective]} ({between}n = {figure.n}{short})"


def table(answers: Sequence[Answer], objectives: Sequence[str], means: Means) -> Table:
    """The table of finalists by their deciding runs, best by the first objective first; rate and epochs are means."""
    drawn = Table(title="finalists, by runs of their own", title_justify="left")
    heads = [(f"to the target ({UNITS[objective]})", "95 % interval") for objective in objectives]
    for heading in ("setting", *chain(*heads), "n", "samples/s", "epochs", ""):
        drawn.add_column(heading)
    by_key = [{key_of(figure.setting): figure for figure in answer.figures} for answer in answers]
    settings = {key: figure.setting for figures in reversed(by_key) for key, figure in figures.items()}
    rows = [[figures.get(key, Figure(setting, 0, None)) for figures in by_key] for key, setting in settings.items()]
    for each in sorted(rows, key=lambda each: (each[0].mean is None, each[0].mean, not each[0].n)):
        figure = max(each, key=lambda figure: figure.n)
        key = key_of(figure.setting)
        marks = [_mark(answer, figure, objective) for answer, objective in zip(answers, objectives, strict=True)]
        beside = means.get(key, {})
        rate, epochs = beside.get("samples_per_sec"), beside.get("epochs")
        drawn.add_row(
            setting_text(figure.setting), *chain(*map(_cells, each)), str(figure.n),
            "" if rate is None else f"{rate:,.0f}", "" if epochs is None else epoch_text(epochs),
            ", ".join(filter(None, marks)),
        )  # fmt: skip
    return drawn


def _cells(figure: Figure) -> tuple[str, str]:
    if not figure.n:
        return "", ""
    return "not reached" if figure.mean is None else significant(figure.mean, 4), _interval(figure)


def _interval(figure: Figure) -> str:
    """`8.8 to 9.4`; empty without an interval."""
    if figure.low is None or figure.high is None:
        return ""
    return f"{significant(figure.low, 4)} to {significant(figure.high, 4)}"


def _mark(answer: Answer, figure: Figure, objective: str) -> str:
    if figure.setting == answer.named and answer.why == NOTHING_COMPARED:
        return "only finalist"
    if figure.setting == answer.named and answer.compared and not _reached(answer, answer.compared):
        return "only it reached the target"
    if figure.setting == answer.named:
        return BEST[objective] if answer.decided and not answer.alike else f"{BEST[objective]} so far"
    return "not told apart" if figure.setting in answer.alike else ""


def _verdict(answer: Answer, objective: str) -> list[str]:
    if answer.why == "running":
        return ["The search was interrupted before it had an answer. Continue it with sweep.resume."]
    best = answer.best_value_if_all_missed
    came = "" if best is None else f" The best value was {significant(best, 4)}."
    if answer.why == "all missed":
        return [f"No setting reached the target.{came} {REACH_MORE}"]
    if answer.why == "missed in deciding" and answer.leading is not None:
        leading = setting_text(answer.leading)
        return [f"Not decided: {leading} reached the target in exploring, but no deciding run did. {REACH_MORE}"]
    if answer.named is None:
        if answer.leading is None:
            return [f"Not decided: no run reached the target within the budget.{came} Give a larger search.budget."]
        return [
            f"Not decided: {setting_text(answer.leading)} was best in single runs, which proves nothing."
            " Give a larger search.budget and sweep.resume to go on."
        ]
    [figure] = [figure for figure in answer.figures if figure.setting == answer.named]
    sentences = [f"{setting_text(answer.named)}: {figure_text(figure, objective)}."]
    if not answer.decided and answer.why != NOTHING_COMPARED:
        sentences = ["Not decided within the budget.", *sentences]
    if answer.alike:
        others = "; ".join(setting_text(setting) for setting in answer.alike)
        sentences.append(f"It cannot be told apart from {others}.{_bound(answer.tolerance)}")
    if figure.mean and answer.unbiased is not None and answer.unbiased > (1 + LEAST_CORRECTION) * figure.mean:
        sentences.append(f"Corrected for selection bias: {significant(answer.unbiased, 4)} {UNITS[objective]}.")
    return [*sentences, *_compared(answer, objective)]


def _bound(tolerance: float | None) -> str:
    if tolerance is None:
        return ""
    if math.isinf(tolerance):
        return " So few runs give no upper bound on its distance to the best of them."
    return f" It is at most {100 * tolerance:.1f} % above the best of them."


def _reached(answer: Answer, settings: Sequence[Mapping[str, Scalar]]) -> list[Mapping[str, Scalar]]:
    """The settings that reached the target in a deciding run."""
    return [figure.setting for figure in answer.figures if figure.setting in settings and figure.mean is not None]


def _compared(answer: Answer, objective: str) -> list[str]:
    """Sentences on the settings that deciding runs compared with the named one, and on those only explored."""
    explored = answer.only_explored or {}
    ends = ", ".join(f"{num} {ENDS[end]}" for end, num in explored.items())
    if answer.why == NOTHING_COMPARED:
        others = f"Exploring ran {counted(sum(explored.values()), 'other setting')}: {ends}." if explored else ""
        alone = f"It was the only finalist, so no runs were compared: it is not shown to be the {BEST[objective]}."
        return [alone, *filter(None, [others])]
    reached = _reached(answer, answer.compared)
    short = [setting_text(setting) for setting in answer.compared if setting not in reached]
    sentences = [f"No deciding run of {'; '.join(short)} reached the target."] if short else []
    if answer.num_left_out:
        finalists = counted(answer.num_left_out, "other finalist")
        sentences.append(f"The budget was too small to compare {finalists}: give a larger search.budget.")
    if explored:
        sentences.append(f"Compared with {counted(len(answer.compared), 'other setting')}; only explored: {ends}.")
    return sentences


def _ratios(answer: Answer, objective: str, means: Means) -> list[str]:
    """`It is 2.6 times as fast (2.3 to 2.9) as gpus=1 batch_size=8, at 1.5 times the cost.`

    The ratio is a bound if runs of one setting did not reach the target.
    """
    if answer.named is None or answer.best_by_group is None or not answer.ratios:
        return []
    [named], sentences = [figure for figure in answer.figures if figure.setting == answer.named], list[str]()
    for group, ratio in answer.ratios.items():
        other = answer.best_by_group[group]
        bound = "at least " if other.num_short else "at most " if named.num_short else ""
        times_the_cost = times(means, named, other, "cost_usd")
        cost = f", at {significant(times_the_cost)} times the cost" if times_the_cost else ""
        sentences.append(
            f"It is {bound}{significant(ratio.value)} times {BETTER[objective]} ({_between(ratio)}) as"
            f" {setting_text(other.setting)}{cost}."
        )
    return sentences


def _between(ratio: Ratio) -> str:
    low, high = significant(ratio.low), significant(ratio.high)
    if not math.isfinite(ratio.high):
        return f"{low} or more"
    return f"{low} to {high}" if ratio.low else f"up to {high}"


def timed_out(jobs: Sequence[Job], timeout_sec: float | None) -> str:
    """A sentence on the runs that the user's `timeout_sec` stopped; those that the budget cut off do not count."""
    failures = [job.result.failure for job in jobs if job.result and job.config.timeout_sec == timeout_sec]
    num = sum(failure is not None and failure.kind == "timeout" for failure in failures)
    return (
        f"timeout_sec={timeout_sec:g} stopped {counted(num, 'run')}: give a larger one." if num and timeout_sec else ""
    )


def one_run(whole: Sequence[float], cut: Sequence[float]) -> str:
    """The time that a run took, its start included, to help choose a larger budget.

    `whole` are seconds of complete runs, `cut` those of runs that a time limit cut off.
    """
    if not whole:
        return f"A run takes more than {significant(max(cut))} s, its start included." if cut else ""
    low, high = (significant(end) for end in (min(whole), max(whole)))
    return (
        f"A run took {low} s, its start included."
        if low == high
        else f"A run took {low} to {high} s, its start included."
    )


def _spent(answer: Answer, budget: Budget) -> str:
    stopped = f", {answer.num_stopped} of them stopped early" if answer.num_stopped else ""
    took = budget.words(answer.explore_cost + answer.decide_cost)
    whole = budget.words(budget.amount)
    grid = ""
    if answer.grid_cost is not None and budget.unit != "runs":
        grid = f" A grid of three seeds would have taken at least {budget.words(answer.grid_cost)} (estimated)."
    return (
        f"{counted(answer.num_explored, 'run')} explored{stopped}, {answer.num_decided} decided: {took} of {whole},"
        f" starts included.{grid}"
    )
