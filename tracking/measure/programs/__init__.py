"""What a program says of its training, made into the events of our journal.

Pure: lines of text go in, records come out. A program speaks MLPerf's log, words that regular expressions find, or our
journal's own lines. A log that was written elsewhere becomes a run by the same way.
"""

from __future__ import annotations

from tracking.measure.programs import foreign
from tracking.measure.programs.account import Account
from tracking.measure.programs.declared_words import DeclaredWords, compiled
from tracking.measure.programs.journal_lines import record_in
from tracking.measure.programs.lines import LeftOut, Lines
from tracking.measure.programs.mlperf_benchmarks import Benchmark, by_our_names
from tracking.measure.programs.mlperf_lines import Entry, Joined, entry_in, is_torn, metric_of
from tracking.measure.programs.mlperf_log import EVALUATIONS, MARKS, NO_STOP, SUCCESS, MLPerfLog, read_log
from tracking.measure.programs.rates import EvaluationPlaces
from tracking.measure.programs.remarks import remarks
from tracking.measure.programs.wall_clock import WallClock

__all__ = [
    "EVALUATIONS",
    "MARKS",
    "NO_STOP",
    "SUCCESS",
    "Account",
    "Benchmark",
    "DeclaredWords",
    "Entry",
    "EvaluationPlaces",
    "Joined",
    "LeftOut",
    "Lines",
    "MLPerfLog",
    "WallClock",
    "by_our_names",
    "compiled",
    "entry_in",
    "foreign",
    "is_torn",
    "metric_of",
    "read_log",
    "record_in",
    "remarks",
]
