"""Gains of a precision in memory, time and energy; gaps between settings; N jobs of one device against one of N."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from tracking.analysis.compare import DEVICES, Estimate, Setting, Task, estimate, estimates
from tracking.analysis.report import within
from tracking.analysis.report.over_tables import shapes_table
from tracking.analysis.report.systems_table import systems_table, traffic_table
from tracking.analysis.results import Cell, Runs, Table
from tracking.base import quantities

TIME = quantities.TIME_TO_ACCURACY_SEC
AXES_OF_HARDWARE = ("env.gpu", "env.hardware_id", "env.topology", "env.cpu", "env.node", "hardware", "topology")
# By metric: the headings of its value and of its gain over fp32, and the factor to the heading's unit.
GAINS = {
    quantities.MEMORY_PEAK_ALLOCATED_BYTES: ("peak memory (GB)", "times less memory than fp32", 1e-9),
    TIME: ("time to accuracy (s)", "times less time than fp32", 1.0),
    quantities.ENERGY_TO_ACCURACY_JOULES: ("energy to accuracy (kJ)", "times less energy than fp32", 1e-3),
}
GAINS_NOTE = "fp32 is the same setting in fp32. ±: standard error."
HARDWARE = (*DEVICES, *AXES_OF_HARDWARE)
GAPS_NOTE = (
    "By {metric}: by how much the largest is above the smallest, of the settings' means and of single runs, all on"
    " the same hardware. A gap of single runs that is much wider is the noise."
)
GAPS_WITH_MISSES = " Settings with runs that did not reach the target are left out, since their means are not known."
JOBS_NOTE = (
    "A sweep of as many trainings as there are devices: as jobs of one device each, all at once, and one after the"
    " other on all devices. Each is as long as alone; jobs at once share a machine, which slows them. One job on all"
    " devices is first for fewer trainings than its speed-up. Cannot be told: N is within two standard errors of the"
    " speed-up."
)


def gains_table(tasks: Sequence[Task]) -> Table | None:
    """The table of settings that were also run in fp32; None if they recorded neither memory nor energy."""
    pairs = [(task, setting, base) for task in tasks for setting in task.settings if (base := _in_fp32(task, setting))]
    shown = {key: words for key, words in GAINS.items() if any(setting.values(key) for _, setting, _ in pairs)}
    if not shown.keys() - {TIME}:
        return None
    rows: list[list[Cell]] = []
    for task, setting, base in pairs:
        row: list[Cell] = [task.title, setting.name]
        for key, (_, _, scale) in shown.items():
            mean, gain = estimate(setting.measured(key), scale), estimates.gain(setting, base, key)
            row += [mean.text() if mean else "", gain.text() if gain else ""]
        rows.append(row)
    headings = [heading for heading_of_mean, over, _ in shown.values() for heading in (heading_of_mean, over)]
    columns = dict.fromkeys(["workload", "setting", *headings], "")
    return Table("What a precision gains", columns, rows, GAINS_NOTE, "gains")


def _in_fp32(task: Task, setting: Setting) -> Setting | None:
    if "precision" not in setting.labels:
        return None
    labels = {**setting.labels, "precision": "fp32"}
    return next((other for other in task.settings if dict(other.labels) == labels), None)


def gaps_table(tasks: Sequence[Task], metric: str) -> Table | None:
    """The table of workloads with several settings on the same hardware, some repeated; None without any."""
    rows: list[list[Cell]] = []
    note = GAPS_NOTE.format(metric=metric)
    for task in tasks:
        # By hardware: a gap between two kinds of hardware would be the speed-up.
        groups: dict[tuple[tuple[str, str], ...], list[Setting]] = {}
        for setting in task.settings:
            if setting.measured(metric).n:
                hardware = tuple((axis, value) for axis, value in setting.labels.items() if axis in HARDWARE)
                groups.setdefault(hardware, []).append(setting)
        rows += [row for hardware, settings in groups.items() if (row := _gap(task, hardware, settings, metric))]
    if not rows:
        return None
    note += GAPS_WITH_MISSES if any(" of " in str(row[2]) for row in rows) else ""
    headings = ["workload", "on", "settings", "smallest mean", "largest mean", "gap of means", "gap of single runs"]
    return Table("How far apart", dict.fromkeys(headings, ""), rows, note, "gaps")


def _gap(
    task: Task, hardware: Sequence[tuple[str, str]], settings: Sequence[Setting], metric: str
) -> list[Cell] | None:
    known = [setting for setting in settings if not setting.measured(metric).num_short]
    of_settings = [setting.measured(metric).reached for setting in known]
    single = [value for values in of_settings for value in values]
    if len(of_settings) < 2 or len(single) == len(of_settings) or min(single) <= 0:
        return None
    means = [fmean(values) for values in of_settings]
    names = [
        " ".join(f"{axis}={value}" for axis, value in setting.labels.items() if axis not in HARDWARE)
        for setting in known
    ]
    ends = [names[means.index(end)] for end in (min(means), max(means))]
    gaps = [f"{100 * (max(values) / min(values) - 1):.1f} %" for values in (means, single)]
    on = " ".join(f"{axis}={value}" for axis, value in hardware)
    of_all = f" of {len(settings)}" if len(known) < len(settings) else ""
    return [task.title, on, f"{len(known)}{of_all}", *ends, *gaps]


def jobs_table(tasks: Sequence[Task]) -> Table | None:
    """The table of N jobs of one device against one of N; None without runs on one device."""
    rows: list[list[Cell]] = []
    for task in tasks:
        for setting in task.settings:
            base = estimates.base_of(setting, task.settings)
            if base is None or base.devices != 1 or not setting.devices or setting.devices == 1:
                continue
            time, alone = estimate(setting.measured(TIME)), estimate(base.measured(TIME))
            speed_up = estimates.gain(setting, base, TIME)
            if time is None or alone is None or time.bound or alone.bound or speed_up is None:
                continue
            count = int(setting.devices)
            times = [within.time_text(Estimate(sec, None, time.n)) for sec in (alone.mean, count * time.mean)]
            rows.append([task.title, setting.name, str(count), *times, *_first(speed_up, count)])
    if not rows:
        return None
    headings = ["workload", "setting", "devices", "jobs at once", "one after the other", "first"]
    columns = dict.fromkeys([*headings, "of up to N trainings, one job is first up to"], "")
    return Table("N jobs of one device against one of N", columns, rows, JOBS_NOTE, "jobs")


def _first(speed_up: Estimate, count: int) -> tuple[str, str]:
    """Which finishes N trainings first, and the most trainings that one job on all devices finishes first."""
    if speed_up.error is not None and abs(speed_up.mean - count) <= 2 * speed_up.error:
        return "cannot be told", ""
    if speed_up.mean > count:
        return "one job", "any number"
    return "jobs at once", str(max(0, int(speed_up.mean - 1e-9)))


def tables_over_all(store: Runs, tasks: Sequence[Task], metric: str) -> list[Table]:
    """The tables that need no option, if the runs have their data."""
    made = (
        shapes_table(tasks, metric), jobs_table(tasks), gains_table(tasks), gaps_table(tasks, metric),
        traffic_table(tasks), systems_table(store, tasks),
    )  # fmt: skip
    return [table for table in made if table]
