"""Tables that answer what is asked when hardware is chosen: limits of time, a base for speed-ups, machines, traffic.

Each is of all workloads together.
"""

from __future__ import annotations

from tracking.analysis.report.questions.over import axes_with, base_of
from tracking.analysis.report.questions.over_tables import over_table, shapes_table
from tracking.analysis.report.questions.systems_table import systems_table
from tracking.analysis.report.questions.within_table import within_table

__all__ = ["axes_with", "base_of", "over_table", "shapes_table", "systems_table", "within_table"]
