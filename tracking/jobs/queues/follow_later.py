"""Follows jobs that another launcher has submitted."""

from __future__ import annotations

from pathlib import Path

from conf.schema import ConfigError
from tracking.jobs.follow import tracking_command
from tracking.jobs.plan import resume, sweep
from tracking.jobs.queues.launcher import Launcher
from tracking.jobs.trust import ownership
from tracking.record import run_folder
from tracking.store import server


def follow(folder: Path, started: float, trust: bool = False) -> int:
    """Follow what was submitted from `folder`; the exit code of launch.py. Raises ConfigError.

    Jobs of a sweep that wait for room are submitted meanwhile: so the folder is this user's, or has the user's `trust`.
    """
    jobs = sweep.read(folder) if run_folder.read_info(folder).kind == "sweep" else []
    configs = [job.config for job in jobs] or [run_folder.read_config(folder)]
    ownership.check(folder, configs, f"follow {folder}", trust, how="--trust")
    config = configs[0]
    if config.cluster.kind != "slurm":
        raise ConfigError(f"{folder}: was not submitted to a cluster; show it with {tracking_command()} report")
    server.named(None)  # the environment's, which this user means
    config.tracking.uri = resume.own_server(folder)
    return Launcher(config, [], started).follow(folder)
