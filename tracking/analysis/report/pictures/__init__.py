"""The pictures of a report: from settings and runs to data, and from data to figures.

`Plotter` makes them. Every picture keeps the data that it was drawn from, to be written beside it.
"""

from tracking.analysis.report.pictures import roofline_chart
from tracking.analysis.report.pictures.charts import beside_lines
from tracking.analysis.report.pictures.drawing import COLOURS, LINES, MARKERS, Point, new_figure, plain, png
from tracking.analysis.report.pictures.plot import Panel, Plot, drawn
from tracking.analysis.report.pictures.plot_data import COST, TIME, as_point, bounds_of
from tracking.analysis.report.pictures.plots import Plotter

__all__ = [
    "COLOURS", "COST", "LINES", "MARKERS", "TIME", "Panel", "Plot", "Plotter", "Point", "as_point", "beside_lines",
    "bounds_of", "drawn", "new_figure", "plain", "png", "roofline_chart",
]  # fmt: skip
