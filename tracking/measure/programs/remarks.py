"""What of a log is to be known beside its figures, as tags of its run."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracking.measure.programs.account import Account

SHOWN_CHARS = 200  # of a line
# `program.status` is that of run_stop.
NAMES = {"submission_status": "program.availability"}


@dataclass
class LeftOut:
    """What is meant for us and cannot be read or does not fit: how many lines, and what is wrong with the first."""

    count: int = 0
    first: str = ""
    _of_files: set[str] = field(default_factory=set)

    def add(self, wrong: str, line: str) -> None:
        self.count += 1
        self.first = self.first or f"{wrong}: {line[:SHOWN_CHARS]}"

    def once(self, wrong: str) -> None:
        """What is wrong with a whole file, however often it is looked at."""
        if wrong not in self._of_files:
            self._of_files.add(wrong)
            self.count += 1
            self.first = self.first or wrong


def remarks(account: Account, unread: LeftOut) -> dict[str, str]:
    """Who made the run, how it ended where not in success, and what of the log is in no figure."""
    said = account.submission.said.items()
    tags = {NAMES.get(key, f"program.{key.removeprefix('submission_')}"): value for key, value in said}
    if account.status and account.status != "success":
        tags["program.status"] = account.status
    if unread.count:
        tags["program.unread_lines"] = f"{unread.count}: {unread.first}"
    if account.no_number:
        tags["program.no_number"] = account.no_number
    if account.clock.set_by_sec:
        tags["program.clock_set"] = f"the wall clock was set by {account.clock.set_by_sec:+.1f} s meanwhile"
    if account.submission.strange:
        tags["program.not_understood"] = "; ".join(account.submission.strange.values())
    if account.left_out:
        tags["program.thinned"] = f"{account.left_out} lines are not in the journal"
    return tags
