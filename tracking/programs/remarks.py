"""What of a log is to be known beside its figures, as tags of its run."""

from __future__ import annotations

from tracking.programs.account import Account


def remarks(account: Account) -> dict[str, str]:
    """Who made the run, how it ended where not in success, and what of the log is in no figure."""
    tags = {f"program.{key.removeprefix('submission_')}": value for key, value in account.said.items()}
    if account.status and account.status != "success":
        tags["program.status"] = account.status
    if account.no_number:
        tags["program.no_number"] = account.no_number
    if account.left_out:
        tags["program.thinned"] = f"{account.left_out} lines are not in the journal"
    return tags
