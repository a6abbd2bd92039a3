"""Turn a program's output about its training into the events of our journal.

Pure: lines of text in, records out. A program writes MLPerf's log, text that regular expressions match, or lines of
our journal. Logs written elsewhere become runs in the same way.
"""

from tracking.measure.programs import checked_values
from tracking.measure.programs.checked_values import WallClock
from tracking.measure.programs.declared_patterns import DeclaredPatterns
from tracking.measure.programs.journal_lines import parse_record
from tracking.measure.programs.line_splitter import LineSplitter, SkippedLines
from tracking.measure.programs.mlperf_benchmarks import Benchmark, by_our_names
from tracking.measure.programs.mlperf_lines import Entry, MetricJoiner, is_torn, metric_of, parse_entry
from tracking.measure.programs.mlperf_log import EVALUATIONS, NO_STOP, RUN_EDGES, SUCCESS, MLPerfLog, read_log
from tracking.measure.programs.program_tags import program_tags
from tracking.measure.programs.rates import EvaluationInterval
from tracking.measure.programs.training_events import TrainingEvents

__all__ = [
    "EVALUATIONS", "NO_STOP", "RUN_EDGES", "SUCCESS", "Benchmark", "DeclaredPatterns", "Entry", "EvaluationInterval",
    "LineSplitter", "MLPerfLog", "MetricJoiner", "SkippedLines", "TrainingEvents", "WallClock", "by_our_names",
    "checked_values", "is_torn", "metric_of", "parse_entry", "parse_record", "program_tags",
    "read_log",
]  # fmt: skip
