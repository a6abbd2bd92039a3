"""Slurm as a queue: sbatch, or srun within an allocation."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from conf.schema import ConfigError, RunConfig
from tracking.jobs.node import JobState, Ticket, scheduler_endings, slurm, ticket, worker_process
from tracking.jobs.queues import batch_script
from tracking.jobs.queues.queue import Queue
from tracking.record import documents, files, run_lock

SETTLING_SEC = 10.0  # of a shared file system


class BatchQueue(Queue):
    """Submits each run as one job with sbatch."""

    outlives = True
    settling_sec = SETTLING_SEC

    def __init__(self, at_once: int, poll_sec: float) -> None:
        self.at_once, self.poll_sec = at_once, poll_sec

    def check(self, configs: Sequence[RunConfig]) -> None:
        slurm.check_commands()
        by_options = {tuple(batch_script.sbatch_options(config, Path("/dev"), "test")): config for config in configs}
        for options in by_options:
            try:
                slurm.test([option for option in options if not option.startswith("--output")])
            except ConfigError as error:
                raise ConfigError(
                    f"cluster=slurm: Slurm refuses the job: {error}. Next: correct the options of cluster"
                    " (cluster.partition, cluster.time, ...)"
                ) from None
            except slurm.Away as error:
                raise ConfigError(
                    f"cluster=slurm: Slurm takes no jobs now: {error}. Next: check it with sinfo and squeue --me, and"
                    " try again"
                ) from None

    def submit(self, owner: run_lock.Owner, config: RunConfig, name: str, started: float, after: str = "") -> Ticket:
        folder = owner.folder
        script = folder / ticket.SCRIPT
        job_id = self._submitted_before(folder, config)
        if job_id is None:
            documents.write_text(script, batch_script.text(config, folder, name))
            options = [f"--dependency=afterany:{slurm.number(after)}"] if after else []
            job_id = slurm.submit(script, options, mirrors=config.cluster.mirror == "node")
        return ticket.issue(folder, ticket.of_slurm(job_id, config.cluster.max_requeues))

    def _submitted_before(self, folder: Path, config: RunConfig) -> str | None:
        """The job of an earlier submission whose answer was lost; None without one. Raises Away."""
        script = folder / ticket.SCRIPT
        if not files.exists(script):
            return None
        job_id = slurm.job_of(script, scheduler_endings.clusters_in(config.cluster.lines))
        return job_id if job_id != scheduler_endings.job_of(folder) else None  # else the earlier attempt's

    def states(self, tickets: Sequence[Ticket]) -> dict[str, JobState]:
        return slurm.states([made.asked for made in tickets])

    def cancel(self, tickets: Sequence[Ticket], signum: int) -> None:
        slurm.cancel([made.asked for made in tickets])


class AllocationQueue(Queue):
    """Runs each job as a step of the allocation that holds this process; the steps end with the process."""

    outlives = False
    poll_sec = 0.2
    settling_sec = SETTLING_SEC

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self._steps: dict[str, subprocess.Popen[bytes]] = {}

    def check(self, configs: Sequence[RunConfig]) -> None:
        nodes = os.environ.get("SLURM_JOB_NUM_NODES", "")
        if not nodes.isdigit() or "SLURM_JOB_ID" not in os.environ:
            raise ConfigError(
                "cluster=here: no Slurm allocation found (SLURM_JOB_ID or SLURM_JOB_NUM_NODES is not set). Next:"
                " start it in salloc or in a batch script, or give cluster=slurm"
            )
        for config in configs:
            if config.nodes > int(nodes):
                raise ConfigError(
                    f"nodes={config.nodes}: the allocation {os.environ['SLURM_JOB_ID']} has {nodes} nodes. Next: give"
                    " fewer"
                )

    def submit(self, owner: run_lock.Owner, config: RunConfig, name: str, started: float, after: str = "") -> Ticket:
        folder = owner.folder
        command = [*batch_script.srun(config), *batch_script.supervisor(folder)]
        with (folder / ticket.PRINTED).open("ab") as printed:
            # In its own session, the step gets no Ctrl-C: this process ends it in good order. Only this process holds
            # the step's input pipe open, and srun passes its end on (tracking/jobs/handover/lifeline.py).
            step = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
            )
        made = Ticket("here", f"{os.environ['SLURM_JOB_ID']}/{step.pid}")
        self._steps[made.job_id] = step
        return ticket.issue(folder, made)

    def states(self, tickets: Sequence[Ticket]) -> dict[str, JobState]:
        codes = {made.job_id: self._steps[made.job_id].poll() for made in tickets}
        return {
            job_id: JobState("RUNNING" if code is None else f"EXIT CODE {code}" if code else "COMPLETED")
            for job_id, code in codes.items()
        }

    def cancel(self, tickets: Sequence[Ticket], signum: int) -> None:
        worker_process.stop([self._steps[made.job_id] for made in tickets])
