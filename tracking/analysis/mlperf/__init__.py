"""A run in MLPerf's terms: its log, as MLPerf's compliance checker reads it, and the score of several runs.

A log is made from the run's folder alone.
"""

from tracking.analysis.mlperf.log import LOG, lines, write
from tracking.analysis.mlperf.rcp import Convergence, convergence
from tracking.analysis.mlperf.score import Score, scores

__all__ = ["LOG", "Convergence", "Score", "convergence", "lines", "scores", "write"]
