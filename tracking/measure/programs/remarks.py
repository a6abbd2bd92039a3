"""Remarks on a log, as tags of its run."""

from __future__ import annotations

from tracking.measure.programs.training_events import TrainingEvents
from tracking.measure.programs.whole_lines import LeftOut

# `program.status` is the status of run_stop, so submission_status gets another name.
NAMES = {"submission_status": "program.availability"}


def remarks(account: TrainingEvents, unread: LeftOut, numbers: LeftOut | None = None) -> dict[str, str]:
    """Tags: who made the run, its end if not a success, and the parts of the log that no figure covers."""
    facts = account.submission.facts.items()
    tags = {NAMES.get(key, f"program.{key.removeprefix('submission_')}"): value for key, value in facts}
    if account.status and account.status != "success":
        tags["program.status"] = account.status
    if unread.count:
        tags["program.unread_lines"] = str(unread)
    if numbers and numbers.count:
        tags["program.unread_numbers"] = str(numbers)
    if account.submission.no_number:
        tags["program.no_number"] = account.submission.no_number
    if account.clock.set_by_sec:
        tags["program.clock_set"] = f"the wall clock was set by {account.clock.set_by_sec:+.1f} s meanwhile"
    if account.submission.strange:
        tags["program.not_understood"] = "; ".join(account.submission.strange.values())
    if account.left_out:
        tags["program.thinned"] = f"{account.left_out} lines are not in the journal"
    return tags
