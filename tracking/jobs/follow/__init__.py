"""Followers of a run: the mirror to MLflow, the console, uploads, and marks of unfinished runs.

A follower only reads run folders. It may start and stop at any time, and run on another host.
"""

from tracking.jobs.follow import job_words, price_words, result_table, search_price, sync, unfinished
from tracking.jobs.follow.mirror_thread import MirrorThread
from tracking.jobs.follow.progress import PHASES, JobLines, RunProgress
from tracking.jobs.follow.sync import Outcome
from tracking.jobs.follow.uploads import Uploads, tracking_command
from tracking.jobs.follow.waiting import Waiting

__all__ = [
    "PHASES", "JobLines", "MirrorThread", "Outcome", "RunProgress", "Uploads", "Waiting", "job_words", "price_words",
    "result_table", "search_price", "sync", "tracking_command", "unfinished",
]  # fmt: skip
