"""MLPerf's own terms: the log of a run of its benchmarks, as its compliance checker reads it, and the score of several.

What goes into a log is read from the run's folder alone. Nothing here starts, trains or uploads anything.
"""

from __future__ import annotations

from tracking.analysis.mlperf.log import LOG, lines, write
from tracking.analysis.mlperf.rcp import Convergence, convergence
from tracking.analysis.mlperf.score import Score, Scored, scores

__all__ = ["LOG", "Convergence", "Score", "Scored", "convergence", "lines", "scores", "write"]
