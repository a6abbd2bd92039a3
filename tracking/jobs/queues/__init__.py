"""Queues that run jobs on this machine or on Slurm, and the launcher that follows the jobs.

Slurm is reached through its own commands only.
"""

from tracking.jobs.queues import batch_script
from tracking.jobs.queues.follow_later import follow
from tracking.jobs.queues.launcher import Launcher

__all__ = ["Launcher", "batch_script", "follow"]
