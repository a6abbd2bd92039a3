"""Who follows a run: the mirror to MLflow, the console, uploads, and the repair of what was cut off.

A follower reads run folders. It may come and go, and run on another host.
"""

from __future__ import annotations

from tracking.jobs.follow import job_words, price_words, result_table, search_price, sync, unfinished
from tracking.jobs.follow.mirror_thread import MirrorThread
from tracking.jobs.follow.progress import PHASES, RunProgress
from tracking.jobs.follow.sync import Outcome
from tracking.jobs.follow.uploads import Uploads, tracking_command
from tracking.jobs.follow.waiting import Waiting

__all__ = [
    "PHASES",
    "MirrorThread",
    "Outcome",
    "RunProgress",
    "Uploads",
    "Waiting",
    "job_words",
    "price_words",
    "result_table",
    "search_price",
    "sync",
    "tracking_command",
    "unfinished",
]  # fmt: skip
