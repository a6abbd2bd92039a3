"""What of a log is to be known beside its figures, as tags of its run."""

from __future__ import annotations

from tracking.measure.programs.training_events import TrainingEvents
from tracking.measure.programs.whole_lines import LeftOut

# `program.status` is that of run_stop.
NAMES = {"submission_status": "program.availability"}


def remarks(account: TrainingEvents, unread: LeftOut, numbers: LeftOut | None = None) -> dict[str, str]:
    """Who made the run, how it ended where not in success, and what of the log is in no figure."""
    said = account.submission.said.items()
    tags = {NAMES.get(key, f"program.{key.removeprefix('submission_')}"): value for key, value in said}
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
