"""Turn a program's output about its training into the events of our journal.

Pure: lines of text in, records out. A program writes MLPerf's log, text that regular expressions match, or lines of
our journal. Logs written elsewhere become runs in the same way.
"""

from __future__ import annotations

from tracking.measure.programs import checked_values
from tracking.measure.programs.declared_words import DeclaredWords, compiled
from tracking.measure.programs.journal_lines import record_in
from tracking.measure.programs.mlperf_benchmarks import Benchmark, by_our_names
from tracking.measure.programs.mlperf_lines import Entry, Joined, entry_in, is_torn, metric_of
from tracking.measure.programs.mlperf_log import EVALUATIONS, MARKS, NO_STOP, SUCCESS, MLPerfLog, read_log
from tracking.measure.programs.rates import EvaluationPlaces
from tracking.measure.programs.remarks import remarks
from tracking.measure.programs.training_events import TrainingEvents
from tracking.measure.programs.wall_clock import WallClock
from tracking.measure.programs.whole_lines import LeftOut, Lines

__all__ = [
    "EVALUATIONS",
    "MARKS",
    "NO_STOP",
    "SUCCESS",
    "Benchmark",
    "DeclaredWords",
    "Entry",
    "EvaluationPlaces",
    "Joined",
    "LeftOut",
    "Lines",
    "MLPerfLog",
    "TrainingEvents",
    "WallClock",
    "by_our_names",
    "checked_values",
    "compiled",
    "entry_in",
    "is_torn",
    "metric_of",
    "read_log",
    "record_in",
    "remarks",
]
