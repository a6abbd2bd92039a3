"""The queue of a machine whose jobs run side by side: a supervisor for each, in a share of its own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence

from conf.schema import ConfigError, RunConfig
from tracking.jobs.node import JobState, Share, Ticket, shares, supervision, ticket
from tracking.jobs.queues import batch_script
from tracking.machine.environment import nvml
from tracking.record import run_lock

KIND = "shared"


class SharedMachine:
    """Processes of this launcher, which end with it."""

    outlives = False
    poll_sec = 0.2

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._shares: list[Share] = []
        self._running: dict[str, tuple[Share, subprocess.Popen[bytes]]] = {}

    def check(self, configs: Sequence[RunConfig]) -> None:
        if any(config.nodes > 1 for config in configs):
            raise ConfigError(f"sweep.jobs_at_once={self._at_once}: jobs of nodes=1 share a machine; give nodes=1")
        if chosen := next((config.gpus for config in configs if isinstance(config.gpus, list)), None):
            raise ConfigError(
                f"gpus={chosen}: sweep.jobs_at_once={self._at_once} gives each job GPUs of its own; give their number,"
                " and CUDA_VISIBLE_DEVICES for those that may be used"
            )
        gpus = {gpu.uuid: shares.numa_of_pci(nvml.bus_id(gpu.uuid)) for gpu in nvml.visible_gpus()}
        most = max(config.num_gpus() for config in configs)
        self._shares = shares.cut(self._at_once, shares.cores_here(), gpus, most)
        widest = max(config.cpu_processes for config in configs)
        if widest > len(self._shares[0].threads):
            raise ConfigError(
                f"sweep.jobs_at_once={self._at_once}: {len(self._shares[0].threads)} cores are there for each job, and"
                f" cpu_processes={widest} need one each; give fewer"
            )

    def submit(self, owner: run_lock.Owner, config: RunConfig, name: str, after: str = "") -> Ticket:
        share, folder = self._free_share(), owner.folder
        with (folder / ticket.PRINTED).open("ab") as printed:
            # A session of its own: Ctrl-C reaches the launcher alone, which ends the job in good order. It inherits the
            # folder's lock, and a pipe that only this process holds open (tracking/jobs/node/lifeline.py).
            process = subprocess.Popen(
                batch_script.supervisor(folder), stdin=subprocess.PIPE, stdout=printed, stderr=subprocess.STDOUT,
                env={**os.environ, **share.environment(), **run_lock.handed_over(owner)}, start_new_session=True,
                pass_fds=[owner.descriptor],
            )  # fmt: skip
        made = Ticket(KIND, str(process.pid))
        self._running[made.job_id] = share, process
        return ticket.issue(folder, made)

    def _free_share(self) -> Share:
        """One that no process is in any more: a run has its result a moment before its supervisor has ended."""
        assert self._shares, "`check` comes first"
        while True:
            taken = [share for share, process in self._running.values() if process.poll() is None]
            if free := [share for share in self._shares if share not in taken]:
                return free[0]
            time.sleep(supervision.POLL_SEC)

    def states(self, tickets: Sequence[Ticket]) -> dict[str, JobState]:
        states = {}
        for made in tickets:
            share, process = self._running[made.job_id]
            code = process.poll()
            words = "RUNNING" if code is None else f"EXIT CODE {code}" if code else "COMPLETED"
            states[made.job_id] = JobState(words, nodes=str(share), what="process")
        return states

    def cancel(self, tickets: Sequence[Ticket]) -> None:
        for made in tickets:
            supervision.stop(self._running[made.job_id][1])
