"""A report of runs: its tables, its plots and its page.

Numbers come from `compare`; here they are put into order and into words. Whoever recomputes them (`audit`) shares no
code with this room.
"""

from __future__ import annotations

from tracking.analysis.report import page, report
from tracking.analysis.report.pictures import (
    COLOURS,
    LINES,
    MARKERS,
    Panel,
    Plot,
    Point,
    beside_lines,
    drawn,
    png,
    roofline_chart,
)
from tracking.analysis.report.report import Report

__all__ = [
    "COLOURS", "LINES", "MARKERS", "Panel", "Plot", "Point", "Report", "beside_lines", "drawn", "page", "png", "report",
    "roofline_chart",
]  # fmt: skip
