"""The table of a sweep: its axes, the status of each job, and means over seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich.table import Table

from conf import metric
from conf.schema import NOT_MEASURED, RunConfig
from tracking.analysis.compare import Estimate, Setting, censoring, estimate
from tracking.analysis.results import BETTER_TAG, UNCOUNTED_TAG, Run, words
from tracking.base import quantities
from tracking.base.quantities import Quantity
from tracking.base.safe_text import in_csv, in_markdown, path_to_type
from tracking.jobs.plan.job import Job
from tracking.jobs.plan.run_setup import IN_RUN_NAME
from tracking.record import Result, documents, failures, headline, journal, run_folder

LEGEND = {  # by the sign in the table that it explains
    " %)": "(%): the 95 % interval of the share of runs that reach the target.",
    "±": "±: standard error of the mean over seeds.",
    "≥": "≥: at least, since runs did not reach the target or became NaN.",
    "≤": "≤: at most, since a run became NaN.",
}
# Shown only if a run missed its target, or if the metric was measured.
WHERE_MISSED, WHERE_MEASURED = quantities.EPOCHS_TRAINED, quantities.THROUGHPUT_MODEL_FLOPS_UTILIZATION
# Evaluations are shown only where they differ from epochs.
EVALUATIONS, EPOCHS = quantities.EVALUATIONS_TO_ACCURACY, quantities.EPOCHS_TO_ACCURACY
COST = quantities.COST_SWEEP_USD  # of all jobs together
# The summary's columns by MLflow key.
COLUMNS = (
    quantities.TIME_TO_ACCURACY_SEC, quantities.TIME_TO_ACCURACY_TRAIN_SEC, EPOCHS, WHERE_MISSED, EVALUATIONS,
    quantities.BEST,  # a column for each target's metric; without a target, for each metric with a best value
    quantities.THROUGHPUT_SAMPLES_PER_SEC, WHERE_MEASURED, quantities.WORLD_SIZE,
)  # fmt: skip


def grid(jobs: Sequence[Job]) -> dict[str, list[str]]:
    """The axes of the jobs, with their values in order of appearance; a group (model, ...) by its name.

    An axis is a key that the command line gave, or that separates jobs with equal other axes. Values of a recipe follow
    from the model, so they are not axes. `warm_up` is not an axis: names and the table's status show it.
    """
    rows = [flat(job.config) for job in jobs]
    values_of: dict[str, dict[str, None]] = {}  # by key, in order of appearance
    for row in rows:
        for key, value in row.items():
            values_of.setdefault(key, {})[value] = None
    differing = [key for key, values in values_of.items() if key != "warm_up" and len(values) > 1]
    groups = {key.partition(".")[0] for key in differing if key.endswith(".name")}
    differing = [key for key in differing if key.endswith(".name") or key.partition(".")[0] not in groups]
    chosen = {key for job in jobs for word in job.overrides for key in _given_by(word, differing)}
    axes = [key for key in differing if key.endswith(".name") or key in chosen]
    for key in differing:
        settings = {tuple(row.get(axis) for axis in axes) for row in rows}
        if key not in axes and len({tuple(row.get(axis) for axis in (*axes, key)) for row in rows}) > len(settings):
            axes.append(key)
    return {key.removesuffix(".name"): list(values_of[key]) for key in differing if key in axes}


def _given_by(override: str, keys: Sequence[str]) -> list[str]:
    """The keys that an override sets: the key itself, or all keys below it (`model.hparams={...}`)."""
    name, _, value = override.lstrip("+").partition("=")
    return [key for key in keys if key == name or (value.startswith("{") and key.startswith(f"{name}."))]


def varied(jobs: Sequence[Job]) -> list[str]:
    """Each job's values of the axes that are not in IN_RUN_NAME: `batch_size=64`."""
    axes = {key: told_apart(values) for key, values in grid(jobs).items() if key not in IN_RUN_NAME}
    return [
        ",".join(f"{key.rpartition('.')[2]}={short.get(value_of(job, key), '')}" for key, short in axes.items())
        for job in jobs
    ]


def told_apart(values: Sequence[str]) -> dict[str, str]:
    """Each value, shortened to the words that differ between the values: `compile true` for a command.

    The option before the first such word stays. A path becomes its file's name. Values that share no word stay whole.
    """
    rows = [value.split() for value in values]
    before = _num_alike(rows)
    behind = _num_alike([row[before:][::-1] for row in rows])
    if not before and not behind:
        return {value: value for value in values}
    if before and (rows[0][before - 1].startswith("-") or min(map(len, rows)) == before + behind):
        before -= 1
    return {
        value: " ".join(word.lstrip("-").rpartition("/")[2] for word in row[before : len(row) - behind])
        for value, row in zip(values, rows, strict=True)
    }


def _num_alike(rows: Sequence[Sequence[str]]) -> int:
    """The number of leading words that all rows share."""
    return sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, zip(*rows, strict=False)))


def value_of(job: Job, key: str) -> str:
    values = flat(job.config)
    return values.get(f"{key}.name", values.get(key, ""))


def flat(config: RunConfig) -> dict[str, str]:
    """All values of a config that decide what is measured, by dotted key."""
    return words({key: value for key, value in dataclasses.asdict(config).items() if key not in NOT_MEASURED})


def columns(jobs: Sequence[Job]) -> list[Quantity]:
    """The columns of these jobs' summary."""
    chosen: list[str] = []
    measured = [job.result.metrics for job in jobs if job.result is not None]
    keys = list(dict.fromkeys(key for metrics in measured for key in metrics))
    targets = {name for job in jobs if job.result is not None for name in job.result.targets}
    missed = any(metrics.get(quantities.TARGET_REACHED) == 0.0 for metrics in measured)
    left_out = (set() if missed else {WHERE_MISSED}) | (set() if WHERE_MEASURED in keys else {WHERE_MEASURED})
    if all(metrics.get(EVALUATIONS, metrics.get(EPOCHS)) == metrics.get(EPOCHS) for metrics in measured):
        left_out.add(EVALUATIONS)
    for key in COLUMNS:
        if key == quantities.BEST:
            bests = [metric for metric in keys if metric.startswith(key)]
            chosen += [metric for metric in bests if not targets or quantities.metric_name(metric) in targets]
        elif key not in left_out:
            chosen.append(key)
    return [*map(quantities.quantity, chosen)]


def summary(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """One row for each job; with repeated settings, then one row for each setting with mean and standard error.

    Failed jobs are listed with their cause. Runs that missed the target, timed out or diverged are censored in the
    means to accuracy, as in a report. `values` has an entry for every column: an estimate or None.
    """
    keys, shown = list(grid(jobs)), [column.key for column in columns(jobs)]
    settings: dict[tuple[str, ...], list[Job]] = {}
    rows = []
    for job in jobs:
        labels = {key: value_of(job, key) for key in keys}
        settings.setdefault(tuple(value for key, value in labels.items() if key != "seed"), []).append(job)
        metrics = job.result.metrics if job.result else {}
        values = {key: Estimate(metrics[key], None, 1) if key in metrics else None for key in shown}
        rows.append({"labels": labels, "n": "", "status": status(job), "values": values})
    if "seed" in keys and len(jobs) > len(settings):
        for setting, every in settings.items():
            members = [job for job in every if not job.config.warm_up]
            if not members:
                continue
            labelled = iter(setting)  # in the order of the columns
            labels = {key: "all" if key == "seed" else next(labelled) for key in keys}
            rows.append({"labels": labels, **pooled(members, shown)})
    return rows


def pooled(members: Sequence[Job], keys: Iterable[str]) -> dict[str, Any]:
    """The row of a setting. Means are over all jobs with the metric, also those that missed, but no resumed ones."""
    runs = [run_of(job) for job in members]
    counted = [run for run, job in zip(runs, members, strict=True) if run.finished and not uncounted(job)]
    finished = [run for run in counted if not run.resumed]
    setting, resumed = Setting.of({}, runs, finished), len(counted) - len(finished)
    notes = [f"reached by {setting.reached.text}" if setting.reached else "", censoring.stopped_words(setting.stopped)]
    notes += [f"{resumed} resumed, not counted" if resumed else ""]
    values = {key: estimate(setting.measured(key)) for key in keys}
    return {"n": f"{len(finished)} of {len(members)}", "status": ", ".join(filter(None, notes)), "values": values}


def run_of(job: Job) -> Run:
    """The job as a Run for comparisons. If it missed its target, its journal gives the bounds and NaNs."""
    result = job.result or Result("not run")
    noted: dict[str, float] = {}
    if job.folder is not None and not result.metrics.get(quantities.TARGET_REACHED):
        for record, _ in journal.read(job.folder / run_folder.JOURNAL):
            values = record.values if record.kind == "metrics" else {}
            noted |= censoring.beside_result(values)
    status = {"finished": "FINISHED", "not run": "RUNNING"}.get(result.status, "FAILED")
    tags = {"failure": result.failure.kind} if result.failure else {}
    tags |= {"resumed": "1"} if result.resumes else {}
    tags |= {BETTER_TAG: metric.to_tag(result.directions)}
    params = {"target_metric": ",".join(result.targets or job.config.targets())}  # MLPerf's log may name other targets.
    return Run(job.name, job.name, "", status, 0, None, params, tags, noted | result.metrics)


def outcome(job: Job) -> str:
    """A job's outcome in a line: its figures, or why it failed and the last line that a program printed."""
    result = job.result
    assert result is not None
    if result.failure is None:
        beside = f", beside others ({result.neighbours})" if result.neighbours else ""
        why = "" if job.config.search.phase else uncounted(job)  # A search has printed this already.
        return (headline(result) or "finished") + beside + (f"; not counted: {why}" if why else "")
    words = f"{status(job)}: {result.failure.message}"
    if job.folder is None or not job.config.is_program():
        return words
    last = failures.last_line(job.folder)
    printed = f"; it last printed: {last}" if last and last not in words else ""
    return f"{words}{printed}; see {path_to_type(job.folder / run_folder.WORKER_LOG)}"


def uncounted(job: Job) -> str:
    """Why a finished program run is not counted; empty if it is counted."""
    reason = ""
    if job.folder is not None and job.finished and job.config.is_program():
        for record, _ in journal.read(job.folder / run_folder.JOURNAL):
            reason = record.values.get(UNCOUNTED_TAG, reason) if record.kind == "tags" else reason
    return reason


def status(job: Job) -> str:
    uncounted_as = ", a warm-up, not counted" if job.config.warm_up else ", not counted" if uncounted(job) else ""
    if job.result is None:
        return f"not run{uncounted_as}"
    if job.result.failure is not None:
        kind = job.result.failure.kind
        return f"{'stopped' if kind in failures.STOP_CAUSES else job.result.status}: {kind}{uncounted_as}"
    missed = job.result.metrics.get(quantities.TARGET_REACHED) == 0.0
    resumed = ", resumed" if job.result.resumes else ""
    return ("target missed" if missed else "finished") + resumed + uncounted_as


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the summary as text."""
    shown = []
    for key, figure in row["values"].items():
        facts = quantities.quantity(key)
        scaled = figure.scaled(facts.scale) if figure else None
        if scaled is None or scaled.error:
            shown.append(scaled.text() if scaled else "")  # As many digits as in a report.
            continue
        parts = (scaled.mean, None if key == quantities.WORLD_SIZE else scaled.error)  # A size has no spread.
        texts = [facts.text(part) for part in parts if part is not None]
        shown.append(f"{scaled.bound} {' ± '.join(texts)}".strip())
    return [*row["labels"].values(), row["n"], row["status"], *shown]


def headings(jobs: Sequence[Job]) -> list[str]:
    return [*grid(jobs), "n", "status", *(column.heading for column in columns(jobs))]


def table(name: str, jobs: Sequence[Job]) -> Table:
    """All jobs of a sweep, and the mean ± standard error of repeated settings."""
    rows = summary(jobs)
    shown = str([cells(row) for row in rows])
    caption = " ".join(words for sign, words in LEGEND.items() if sign in shown)
    drawn = Table(title=f"sweep {name}", title_justify="left", caption=caption)
    for heading in headings(jobs):
        drawn.add_column(heading)
    for row in rows:
        drawn.add_row(*cells(row), style="bold" if row["n"] else "")
    return drawn


def write(folder: Path, jobs: Sequence[Job]) -> None:
    documents.write_text(folder / "summary.csv", in_csv([headings(jobs), *map(cells, summary(jobs))]))
    rows = [headings(jobs), ["---"] * len(headings(jobs)), *map(cells, summary(jobs))]
    documents.write_text(folder / "summary.md", "".join(f"| {' | '.join(map(in_markdown, row))} |\n" for row in rows))
