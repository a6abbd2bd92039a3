"""A report of runs: its tables, its plots and its page.

Numbers come from `compare`; here they are put into order and into words. Whoever recomputes them (`audit`) shares no
code with this room.
"""

from __future__ import annotations

from tracking.report import page, report, roofline_chart
from tracking.report.drawing import COLOURS, LINES, MARKERS, png
from tracking.report.report import Report

__all__ = ["COLOURS", "LINES", "MARKERS", "Report", "page", "png", "report", "roofline_chart"]
