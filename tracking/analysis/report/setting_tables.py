"""A report's tables by setting: means, evaluations' metrics, speed-ups, and runs that are not counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracking.analysis.compare import Estimate, Setting, Task, censoring, estimate, estimates, grouping
from tracking.analysis.report import sentences
from tracking.analysis.report.sentences import Sentence
from tracking.analysis.results import Table
from tracking.base import quantities
from tracking.base.quantities import Quantity

MISSED_TOO = "Figures that are not to accuracy are also of runs that missed the target. "
STOPPED = "Stopped: from outside, as by a time limit; nothing is known of such a run beyond that. "
REACHED = "Reached: the runs that reached the target; from 5 runs on with the 95 % interval of the true share."
OLYMPIC = "olympic: without the best and the worst run, from 5 runs on. "
AT_LEAST = "≥: at least, since runs did not reach the target; those count as the time by which they had not. "
OLYMPIC_INVALID = "It leaves out one run that did not reach the target, and is invalid where more did not. "
WHY_GIVEN_UP = "Runs that missed the target, diverged or were stopped count in figures to accuracy."
RATIOS = {key: headings[:2] for key, headings in quantities.RATIOS.items()}
# Columns that describe a setting beside its axes, by param or metric.
FACTS = {quantities.WORLD_SIZE: "devices", "global_batch_size": "global batch", "precision": "precision"}
NOTE = "Best: over a run's evaluations; last: of its last evaluation. Both are means over runs."


@dataclass(frozen=True)
class ReportedFigure:
    """A printed figure of a setting, with the runs that it rests on; `base` is the denominator of a ratio."""

    task: str
    setting: Mapping[str, str]
    heading: str
    key: str
    estimate: Estimate
    runs: Sequence[str]
    base: Mapping[str, str] | None = None


def settings_table(task: Task, axes: Sequence[str]) -> tuple[Table, list[ReportedFigure]]:
    """The table with a row for each setting and a column for each quantity of any run; and its cells as figures."""
    figures: list[ReportedFigure] = []
    shown = quantities_of(task)
    facts = {key: heading for key, heading in FACTS.items() if key not in axes}
    ratios = [key for key in RATIOS if any(_ratios(task, setting, key) for setting in task.settings)]
    shares = ["reached"] if any(map(shown_share, task.settings)) else []
    headings = [*axes, "n", *facts.values(), *shares, *(quantity.heading for quantity in shown)]
    headings += [heading for key in ratios for heading in RATIOS[key]]
    rows = []
    for setting in task.settings:
        cells = [*setting.labels.values(), f"{len(setting.runs)} of {setting.total}{out_of_memory(setting)}"]
        cells += [_fact(setting, key) for key in facts]
        cells += [shown_share(setting) for _ in shares]
        for quantity in shown:
            cells.append(mean_cell(figures, task, setting, quantity))
        for key in ratios:
            cells += _ratio_cells(figures, task, setting, key)
        rows.append(cells)
    note = "n: runs averaged, of all. "
    shown_means = [figure.estimate for figure in figures]
    note += "±: standard error of the mean. " if any(mean.error is not None for mean in shown_means) else ""
    note += MISSED_TOO if any(setting.missed for setting in task.settings) else ""
    note += STOPPED if any(setting.stopped for setting in task.settings) else ""
    note += OLYMPIC if any(mean.olympic is not None or mean.invalid for mean in shown_means) else ""
    note += OLYMPIC_INVALID if any(mean.invalid for mean in shown_means) else ""
    note += f"{REACHED} " if shares else ""
    note += AT_LEAST if any(mean.bound == "≥" for mean in shown_means) else ""
    note += "Speed-up and efficiency are over the fewest devices." if ratios else ""
    return Table(task.title, dict.fromkeys(headings, ""), rows, note.strip(), "settings", task.title), figures


def out_of_memory(setting: Setting) -> str:
    """How many runs ran out of memory; "" without any."""
    return f"; {setting.num_out_of_memory} out of memory" if setting.num_out_of_memory else ""


def quantities_of(task: Task) -> list[Quantity]:
    """The quantities that runs of the workload have."""
    runs = [run for setting in task.settings for run in setting.trained]
    measured = [key for key in quantities.OF_A_SETTING if any(setting.values(key) for setting in task.settings)]
    same = all(
        run.metrics.get(quantities.EVALUATIONS_TO_ACCURACY) == run.metrics.get(quantities.EPOCHS_TO_ACCURACY)
        for run in runs
    )
    left_out = {quantities.EVALUATIONS_TO_ACCURACY} if same else set()
    left_out |= set() if any(setting.missed for setting in task.settings) else {quantities.EPOCHS_TRAINED}
    return [quantities.quantity(key) for key in measured if key not in left_out]


def mean_cell(figures: list[ReportedFigure], task: Task, setting: Setting, quantity: Quantity) -> str:
    """A setting's mean as text, which is also added to `figures`; "" if no run has a value."""
    mean = estimate(setting.measured(quantity.key), quantity.scale)
    if mean is None:
        return ""
    ids = ids_of(setting, quantity.key)
    figures.append(ReportedFigure(task.title, setting.labels, quantity.heading, quantity.key, mean, ids))
    return mean.text(setting.usual_n(quantity.key))


def shown_share(setting: Setting) -> str:
    """How many runs reached the target, with the interval of the true share, and how many were stopped before it."""
    stopped = f"{len(setting.stopped)} stopped" if setting.stopped else ""
    return "; ".join(filter(None, [setting.reached.text if setting.reached else "", stopped]))


def ids_of(setting: Setting, key: str) -> list[str]:
    """The ids of the runs that a figure rests on."""
    return [run.id for run in setting.runs_of(key)]


def _ratios(task: Task, setting: Setting, key: str) -> tuple[Estimate, Estimate] | None:
    base = estimates.base_of(setting, task.settings)
    return estimates.speed_up(setting, base, key) if base else None


def _ratio_cells(figures: list[ReportedFigure], task: Task, setting: Setting, key: str) -> list[str]:
    ratios = _ratios(task, setting, key)
    base = estimates.base_of(setting, task.settings)
    if ratios is None or base is None:
        return ["", ""]
    ids = ids_of(setting, key)
    for heading, ratio in zip(RATIOS[key], ratios, strict=True):
        figures.append(ReportedFigure(task.title, setting.labels, heading, key, ratio, ids, base.labels))
    return [ratio.text() for ratio in ratios]


def _fact(setting: Setting, key: str) -> str:
    values = {f"{run.metrics[key]:g}" if key in run.metrics else run.params.get(key, "") for run in setting.trained}
    return ", ".join(sorted(values, key=grouping.in_order))


def speed_up_table(tasks: Sequence[Task], metric: str) -> Table | None:
    """Speed-ups of all workloads: a row for each workload and setting, a column for each number of devices."""
    to_accuracy = metric in (quantities.TIME_TO_ACCURACY_SEC, quantities.TIME_TO_ACCURACY_TRAIN_SEC)
    key = quantities.TIME_TO_ACCURACY_SEC if to_accuracy else quantities.THROUGHPUT_SAMPLES_PER_SEC
    rows: dict[tuple[str, str], dict[float, str]] = {}
    for task in tasks:
        for setting in task.settings:
            ratios = _ratios(task, setting, key)
            if ratios and setting.devices:
                name = estimates.line_name(setting, task.settings)
                rows.setdefault((task.title, name), {})[setting.devices] = ratios[0].text()
    if not rows:
        return None
    counts = sorted({count for cells in rows.values() for count in cells})
    columns = dict.fromkeys(["workload", "setting", *(f"{count:g} devices" for count in counts)], "")
    quantity = "time to accuracy" if to_accuracy else "rate"
    cells = [[*labels, *(by_count.get(count, "") for count in counts)] for labels, by_count in rows.items()]
    return Table("Speed-ups over the fewest devices", columns, cells, f"By {quantity}; ±: standard error.", "speed-ups")


def excluded_table(tasks: Sequence[Task], num_runs: int) -> tuple[Table, Sentence]:
    """The table of runs that are not in every mean, and its title, a sentence with their number."""
    rows = [[task.title, name, run.name, run.id, why] for task in tasks for run, name, why in task.excluded]
    columns = dict.fromkeys(["workload", "setting", "run", "id", "why"], "")
    note = WHY_GIVEN_UP if rows else "Runs that are not in every mean: none."
    sentence = sentences.excluded(len(rows), num_runs)
    return Table(sentence.text, columns, rows, note, "excluded"), sentence


def metrics_table(task: Task, axes: Sequence[str]) -> tuple[Table, list[ReportedFigure]] | None:
    """The table and its figures; None without a best value. Older runs' values without a direction are left out."""
    runs = [run for setting in task.settings for run in setting.trained]
    bests = sorted({key for run in runs for key in run.metrics if key.startswith(quantities.BEST)})
    names = [quantities.metric_name(key) for key in bests if any(setting.better(key) for setting in task.settings)]
    if not names:
        return None
    shown = [quantities.quantity(prefix + name) for name in names for prefix in (quantities.BEST, quantities.EVAL)]
    figures: list[ReportedFigure] = []
    rows = [
        [*setting.labels.values(), *(mean_cell(figures, task, setting, quantity) for quantity in shown)]
        for setting in task.settings
    ]
    headings = dict.fromkeys([*axes, *(quantity.heading for quantity in shown)], "")
    note = NOTE + estimates.explained([figure.estimate.bound for figure in figures], censoring.why_bound(shown[0].key))
    return Table(f"{task.title}: metrics", headings, rows, note, "metrics", task.title), figures
