"""Tables for choosing hardware: limits of time, a base for speed-ups, machines and traffic.

Each covers all workloads.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracking.analysis.compare import Task
from tracking.analysis.report.questions.gain_tables import gains_table, gaps_table, jobs_table
from tracking.analysis.report.questions.over_tables import axes_with, base_of, over_table, shapes_table
from tracking.analysis.report.questions.systems_table import systems_table
from tracking.analysis.report.questions.traffic_table import traffic_table
from tracking.analysis.report.questions.within import within_table
from tracking.analysis.results import Runs, Table

__all__ = ["axes_with", "base_of", "over_table", "tables_over_all", "within_table"]


def tables_over_all(store: Runs, tasks: Sequence[Task], metric: str) -> list[Table]:
    """The tables that need no option, if the runs have their data."""
    made = (
        shapes_table(tasks, metric), jobs_table(tasks), gains_table(tasks), gaps_table(tasks, metric),
        traffic_table(tasks), systems_table(store, tasks),
    )  # fmt: skip
    return [table for table in made if table]
