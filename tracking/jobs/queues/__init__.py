"""How jobs get to nodes: to this machine, one or several at once, or to Slurm; and the launcher that follows them.

Slurm is spoken to by its own commands alone.
"""

from __future__ import annotations

from tracking.jobs.queues import batch_script
from tracking.jobs.queues.follow_later import follow
from tracking.jobs.queues.launcher import Launcher

__all__ = ["Launcher", "batch_script", "follow"]
