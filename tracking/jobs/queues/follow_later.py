"""Follows jobs that another launcher submitted."""

from __future__ import annotations

from pathlib import Path

from conf.schema import ConfigError
from tracking.jobs import ownership
from tracking.jobs.follow import tracking_command
from tracking.jobs.plan import resume, sweep
from tracking.jobs.queues.launcher import Launcher
from tracking.record import run_folder
from tracking.store import server


def follow(folder: Path, started: float, trust: bool = False) -> int:
    """Follow the jobs that were submitted from `folder`; returns the exit code of launch.py. Raises ConfigError.

    A follower also submits a sweep's waiting jobs, so the folder must be this user's own or have the user's `trust`.
    """
    jobs = sweep.read(folder) if run_folder.read_info(folder).kind == "sweep" else []
    configs = [job.config for job in jobs] or [run_folder.read_config(folder)]
    ownership.check(folder, configs, f"follow {folder}", trust, how="--trust")
    config = configs[0]
    if config.cluster.kind != "slurm":
        raise ConfigError(f"{folder}: was not submitted to a cluster. Next: show it with {tracking_command()} report")
    server.option_uri(None)  # the server that this user's environment names
    config.tracking.uri = resume.own_server(folder)
    return Launcher(config, [], started).follow(folder)
