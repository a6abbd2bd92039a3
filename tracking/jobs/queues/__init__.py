"""How jobs get to nodes: one after the other on this machine, several at once, or by Slurm.

Slurm is spoken to by its own commands alone.
"""

from __future__ import annotations

from tracking.jobs.queues import batch_script
from tracking.jobs.queues.cluster_launcher import ClusterLauncher, follow
from tracking.jobs.queues.launcher import Launcher

__all__ = ["ClusterLauncher", "Launcher", "batch_script", "follow"]
