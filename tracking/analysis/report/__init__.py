"""A report of runs: its tables, its plots and its page.

Numbers come from `compare`; this room orders them and puts them into words. `audit` recomputes them without any code
of this room.
"""

from __future__ import annotations

from tracking.analysis.report import page, report
from tracking.analysis.report.over_tables import axes_with, base_of
from tracking.analysis.report.pictures import (
    COLOURS,
    LINES,
    MARKERS,
    Panel,
    Plot,
    Point,
    as_point,
    beside_lines,
    bounds_of,
    drawn,
    png,
    roofline_chart,
)
from tracking.analysis.report.report import Report

__all__ = [
    "COLOURS", "LINES", "MARKERS", "Panel", "Plot", "Point", "Report", "as_point", "axes_with", "base_of",
    "beside_lines", "bounds_of", "drawn", "page", "png", "report", "roofline_chart",
]  # fmt: skip
