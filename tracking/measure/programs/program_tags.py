"""Tags of a run from its program's log: what the log says besides figures."""

from __future__ import annotations

from tracking.measure.programs.line_splitter import SkippedLines
from tracking.measure.programs.training_events import TrainingEvents

# `program.status` is the status of run_stop, so submission_status gets another name.
NAMES = {"submission_status": "program.availability"}


def program_tags(
    events: TrainingEvents, skipped_lines: SkippedLines, skipped_numbers: SkippedLines | None = None
) -> dict[str, str]:
    """Tags: who made the run, its end if not a success, and the parts of the log that no figure covers."""
    facts = events.submission.facts.items()
    tags = {NAMES.get(key, f"program.{key.removeprefix('submission_')}"): value for key, value in facts}
    if events.status and events.status != "success":
        tags["program.status"] = events.status
    if skipped_lines.count:
        tags["program.unread_lines"] = str(skipped_lines)
    if skipped_numbers and skipped_numbers.count:
        tags["program.unread_numbers"] = str(skipped_numbers)
    if events.submission.non_number:
        tags["program.no_number"] = events.submission.non_number
    if events.clock.set_by_sec:
        tags["program.clock_set"] = f"the wall clock was set by {events.clock.set_by_sec:+.1f} s meanwhile"
    if events.submission.not_understood:
        tags["program.not_understood"] = "; ".join(events.submission.not_understood.values())
    if events.num_skipped:
        tags["program.thinned"] = f"{events.num_skipped} lines are not in the journal"
    return tags
