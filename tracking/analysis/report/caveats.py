"""Warnings of a report: the runs that are not in every figure, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tracking.analysis.compare import Comparison, Setting, Task, censoring, grouping
from tracking.analysis.report.pictures import TIME
from tracking.analysis.results import EXPLORING
from tracking.base import quantities
from tracking.base.number_text import counted
from tracking.record import UNKNOWN_TAG

RATE = quantities.THROUGHPUT_SAMPLES_PER_SEC


def caveats(tasks: Sequence[Task], metric: str, with_missed: bool) -> list[str]:
    """Warnings on the metric, on whole settings and on workloads."""
    warnings, settings = [], [setting for task in tasks for setting in task.settings]
    if len(tasks) > 1:
        names = "; ".join(task.title for task in tasks)
        warnings.append(
            f"{len(tasks)} tasks (model, data set, target), each compared within itself, never with another: {names}"
        )
    undirected = any(setting.measured(metric).reached and not setting.better(metric) for setting in settings)
    if undirected and (advice := quantities.how_to_declare(metric)):
        warnings.append(f"{metric}: settings are not ranked by it. Next: {advice}")
    for task in tasks:
        for setting in task.settings:
            if setting.num_missed and setting.reached:
                warnings.append(
                    f"{task.title}: {setting.name}: {setting.reached.text} reached the target; the others count "
                    "against it in figures to accuracy"
                )
            if setting.stopped:
                stopped = censoring.stopped_words(setting.stopped)
                warnings.append(
                    f"{task.title}: {setting.name}: {stopped}; whether it would have reached the target is not known"
                )
            if unknown := setting.measured(TIME).missed.count(0.0):
                warnings.append(
                    f"{task.title}: {setting.name}: {counted(unknown, 'run')} without the target do not say how "
                    "long they trained: they count as 0 s where another setting is called better"
                )
            if words := _same_seeds(setting):
                warnings.append(f"{task.title}: {setting.name}: {words}")
            if no_rate := sum(RATE in run.tags.get(UNKNOWN_TAG, "") for run in setting.runs):
                warnings.append(
                    f"{task.title}: {setting.name}: {counted(no_rate, 'run')} without a rate: the script trained on"
                    " batches of unknown size. Next: count them, with samples= or trial.step"
                )
            if not setting.runs and not _only_explored(task, setting):
                warnings.append(f"{task.title}: {setting.name}: {_not_averaged(task, setting)}")
    if with_missed:
        warnings.append("--with-missed: n counts runs that missed the target, too")
    return warnings


def _same_seeds(setting: Setting) -> str:
    """A sentence if several runs have the same seed: their spread says little of other seeds'."""
    seeds = [run.params.get("seed") for run in setting.runs]
    if None in seeds or len(set(seeds)) == len(seeds):
        return ""
    runs, of = counted(len(seeds), "run"), counted(len(set(seeds)), "seed")
    return f"{runs} of {of}: they repeat trainings, and other seeds may differ by more than the errors say"


def _only_explored(task: Task, setting: Setting) -> bool:
    """Whether all its runs are a search's exploring runs, which are in no mean by design."""
    return all(EXPLORING in why for _, name, why in task.excluded if name == setting.name)


def _not_averaged(task: Task, setting: Setting) -> str:
    """Why no run of a setting is in every mean."""
    whys = Counter(why for _, name, why in task.excluded if name == setting.name)
    if setting.total == 1:
        return f"its only run is not in every mean: {next(iter(whys))}"
    counts = ", ".join(f"{why} ({number})" for why, number in whys.most_common())
    return f"no run of {setting.total} is in every mean: {counts}"


def unpaired(task: Task, pairs: Sequence[Comparison], key: str) -> list[str]:
    """The warning that settings of sweep.paired=true are not compared in pairs, and which seeds prevent it."""
    unpaired_pairs = [
        pair for pair in pairs if not pair.paired and _decided(pair.better, key) and _decided(pair.worse, key)
    ]
    sides = [side for pair in unpaired_pairs for side in ((pair.better, pair.worse), (pair.worse, pair.better))]
    reasons = dict.fromkeys(reason for side in sides for reason in _reasons(*side, key))
    if not reasons:
        return []
    compared = counted(len(unpaired_pairs), "comparison")
    return [
        f"{task.title}: sweep.paired=true asks for comparisons of the same seed; not possible for {compared}: "
        f"{'; '.join(reasons)}"
    ]


def _decided(setting: Setting, key: str) -> bool:
    return any(run.paired for run in setting.runs_of(key))


def _reasons(setting: Setting, other: Setting, key: str) -> Iterator[str]:
    """Why a setting's runs cannot be paired with those of another setting."""
    runs = sorted(setting.runs_of(key), key=grouping.seed_of)
    seeds = [grouping.seed_of(run) for run in runs]
    for run in runs:
        of_seed = f"{setting.name}: the run of seed {grouping.seed_of(run)}"
        if not run.paired:
            yield f"{of_seed} was made without it"
        if key not in run.metrics:
            yield f"{of_seed} has no {key} ({grouping.why_excluded(run)})"
    for seed in dict.fromkeys(seeds):
        if seeds.count(seed) > 1:
            yield f"{setting.name}: {seeds.count(seed)} runs have the seed {seed}"
    for seed in sorted({grouping.seed_of(run) for run in other.runs_of(key)} - {*seeds}):
        yield f"{setting.name}: no counted run has the seed {seed} and {key}"
