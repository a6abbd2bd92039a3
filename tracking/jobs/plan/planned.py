"""Jobs of a command line: a new launch, a resumed run or a resumed sweep."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracking.jobs.plan import ordering, resume, sweep
from tracking.jobs.plan.job import Job
from tracking.request import checks, node_options
from tracking.request.search_options import is_search
from tracking.store import server


def planned(requested: Sequence[Job], multirun: bool, gpus: Sequence[Any]) -> tuple[Path | None, list[Job]]:
    """The folder of a resumed sweep (else None), and the jobs in the order of their runs. Raises ConfigError.

    The first job's config names the tracking server of all jobs, and the cluster of a resumed sweep.
    """
    for job in requested:  # Resumed jobs may name other servers, which must not get credentials.
        server.option_uri(job.config.tracking.uri)
    config, jobs = requested[0].config, list(requested)
    if config.resume:
        jobs = [resume.resumed_job(jobs[0])]
        resume.check_devices(jobs[0].config, len(gpus))
        checks.check_run(jobs[0].config, gpus)
        config = jobs[0].config
    node_options.check_single_machine(config, multirun or is_search(config))
    ordering.check_distinct(jobs)
    if not config.sweep.resume:
        ordering.check_profiled(jobs)
        ordering.check_paired(jobs)
        return None, ordering.with_warm_ups(ordering.shuffled(jobs), multirun)
    adds = multirun and not is_search(config)
    folder, jobs = sweep.resume(config.runs_dir, config.sweep.resume, ordering.with_warm_ups(jobs, multirun), adds)
    config.cluster = jobs[0].config.cluster
    if config.tracking.uri is None and "MLFLOW_TRACKING_URI" not in os.environ:
        config.tracking.uri = resume.own_server(folder)
    return folder, jobs
