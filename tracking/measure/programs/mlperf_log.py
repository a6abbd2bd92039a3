"""A whole MLPerf log: its entries in order, and the start and end of its run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from conf.target import is_at_most
from tracking.measure.programs import checked_values
from tracking.measure.programs.mlperf_lines import Entry, is_torn, parse_entry
from tracking.measure.programs.submission import Submission
from tracking.record import typed_json

EVALUATIONS = ("eval_accuracy", "eval_error")  # the second is HPC's, where lower is better
RUN_EDGES = ("run_start", "run_stop")
SUCCESS, NO_STOP = "success", "no run_stop"
MAX_RUN_SEC = 1e9  # the longest run


@dataclass(frozen=True)
class MLPerfLog:
    """A log. `stop` is None for a run without its end, which counts as missed. `torn` are unreadable MLPerf lines."""

    entries: Sequence[Entry]
    submission: Submission
    start: Entry | None
    stop: Entry | None
    torn: Sequence[str]

    @property
    def status(self) -> str:
        """`success`, or another word for a run that missed. Some logs of v0.5 show it only by their evaluations."""
        if self.stop is None:
            return NO_STOP
        status, target = self.stop.metadata.get("status"), self.submission.target
        if status is not None or self.stop.round != "v0.5" or target is None:
            return checked_values.text(status) or "no status"
        sign = -1 if any(map(is_at_most, self.submission.benchmark.targets.values())) else 1
        values = [entry.value for entry in self.entries if entry.key in EVALUATIONS]
        reached = any(typed_json.is_number(value) and sign * value >= sign * target for value in values)
        return SUCCESS if reached else "aborted"


def read_log(lines: Iterable[str]) -> MLPerfLog:
    """The log of one run."""
    entries, torn, submission = [], [], Submission(published=True)
    for line in lines:
        entry = parse_entry(line)
        if entry is not None:
            entries.append(entry)
            submission.read(entry)
        elif is_torn(line):
            torn.append(line)
    # Like MLPerf's result_summarizer: the first end, and the last start before it.
    end = next((index for index, entry in enumerate(entries) if entry.key == "run_stop"), len(entries))
    start = next((entry for entry in reversed(entries[:end]) if entry.key == "run_start"), None)
    stop = entries[end] if end < len(entries) else _minigo_stop(entries, start)
    return MLPerfLog(entries, submission, start, stop, torn)


def _minigo_stop(entries: Sequence[Entry], start: Entry | None) -> Entry | None:
    """The end of a MiniGo run of v0.6, which evaluates its models afterwards.

    eval_result holds the time in seconds at which the winning model was made.
    """
    result = next((entry for entry in entries if entry.key == "eval_result"), None)
    seconds = 0.0 if result is None else result.metadata.get("timestamp", 0.0)
    if result is None or start is None or not typed_json.is_number(seconds) or not 0 < seconds < MAX_RUN_SEC:
        return None
    time_ms = start.time_ms + 1e3 * seconds
    return replace(result, key="run_stop", value=None, metadata={"status": SUCCESS}, time_ms=time_ms)
