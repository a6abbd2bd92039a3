"""What the launcher does: it plans jobs, runs them one after the other, mirrors them beside it, and shows how they
go.

A job is a run folder and the process that trains in it; a sweep is a folder of them. What was cut off is repaired or
resumed from here.
"""

from __future__ import annotations

from tracking.jobs import resume, run_setup, sweep, sweep_report, sync, unfinished
from tracking.jobs.cluster import batch_script
from tracking.jobs.cluster.cluster_launcher import ClusterLauncher, follow
from tracking.jobs.job import Job
from tracking.jobs.launcher import Launcher
from tracking.jobs.mirror_thread import MirrorThread
from tracking.jobs.sync import Outcome

__all__ = [
    "ClusterLauncher",
    "Job",
    "Launcher",
    "MirrorThread",
    "Outcome",
    "batch_script",
    "follow",
    "resume",
    "run_setup",
    "sweep",
    "sweep_report",
    "sync",
    "unfinished",
]
