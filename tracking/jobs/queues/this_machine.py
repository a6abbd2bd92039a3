"""This machine as a queue: one job at a time, or several side by side, each in a share of its own."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from conf.schema import ConfigError, RunConfig
from tracking.jobs.handover import Assignment, SupervisorProcess
from tracking.jobs.node import JobState, Share, Ticket, machine_shares, worker_process
from tracking.jobs.queues.queue import Queue
from tracking.machine.environment import nvml
from tracking.record import run_lock

KIND = "shared"
LOST_SEC = 120.0  # A supervisor that was told to stop has ended by then, or hangs and is killed.


class Machine(Queue):
    """Supervisors of this launcher, which end with it. `waiting` is one that was started ahead of its run."""

    outlives = False
    poll_sec = 0.1
    settling_sec = 0.0

    def __init__(self, at_once: int, waiting: SupervisorProcess | None = None) -> None:
        self.at_once = at_once
        self._waiting = waiting
        self._shares: list[Share | None] = [None]
        self._running: dict[str, tuple[Share | None, SupervisorProcess]] = {}
        self._cancelled_at = float("inf")  # monotonic seconds

    def check(self, configs: Sequence[RunConfig]) -> None:
        """Cut the machine into as many shares as jobs are to run at once. Raises ConfigError."""
        if self.at_once == 1:
            return
        asked = f"sweep.jobs_at_once={self.at_once}"
        if any(config.nodes > 1 for config in configs):
            raise ConfigError(f"{asked}: jobs of nodes=1 share a machine; give nodes=1")
        if chosen := next((config.gpus for config in configs if isinstance(config.gpus, list)), None):
            raise ConfigError(
                f"gpus={chosen}: {asked} gives each job GPUs of its own; give their number,"
                " and CUDA_VISIBLE_DEVICES for those that may be used"
            )
        gpus = {gpu.uuid: machine_shares.numa_of_pci(nvml.bus_id(gpu.uuid)) for gpu in nvml.visible_gpus()}
        most = max(config.num_gpus() for config in configs)
        cut = machine_shares.cut(self.at_once, machine_shares.cores_here(), gpus, most)
        widest = max(config.cpu_processes for config in configs)
        if widest > len(cut[0].threads):
            raise ConfigError(
                f"{asked}: {len(cut[0].threads)} cores are there for each job, and"
                f" cpu_processes={widest} need one each; give fewer"
            )
        self._shares = list(cut)

    def expect(self) -> None:
        """Start the next job's supervisor ahead of it."""
        if self._waiting is None or self._waiting.ended() is not None:  # It may have been killed while it waited.
            self._waiting = SupervisorProcess()

    def submit(self, owner: run_lock.Owner, config: RunConfig, name: str, started: float, after: str = "") -> Ticket:
        # What decides has the machine for itself: no other job of its search runs then.
        share = None if config.search.phase == "decide" else self._free_share()
        self.expect()
        supervisor, self._waiting = self._waiting, None
        assert supervisor is not None
        supervisor.assign(
            Assignment(
                owner.folder, owner.descriptor, started, config.timeout_sec,
                config.tracking.system_metrics_interval_sec, share.environment() if share else {},
            )
        )  # fmt: skip
        made = Ticket(KIND, str(supervisor.process.pid))
        self._running[made.job_id] = share, supervisor
        return made

    def _free_share(self) -> Share | None:
        """A share that no process is in any more: a run has its result a moment before its supervisor has ended."""
        while True:
            taken = [share for share, supervisor in self._running.values() if supervisor.ended() is None]
            for share in self._shares:
                if share not in taken:
                    return share
            time.sleep(worker_process.POLL_SEC)

    def states(self, tickets: Sequence[Ticket]) -> dict[str, JobState]:
        states = {}
        for made in tickets:
            share, supervisor = self._running[made.job_id]
            code = supervisor.ended()
            if code is None and time.monotonic() - self._cancelled_at > LOST_SEC:
                supervisor.tell(signal.SIGKILL)
            words = "RUNNING" if code is None else f"EXIT CODE {code}" if code else "COMPLETED"
            signum = -code if code is not None and code < 0 else 0
            states[made.job_id] = JobState(words, nodes=str(share or ""), what="supervisor", signum=signum)
        return states

    def cancel(self, tickets: Sequence[Ticket], signum: int) -> None:
        """Have the jobs stopped, all together; a second time, without grace. They end soon after."""
        self._cancelled_at = min(self._cancelled_at, time.monotonic())
        for made in tickets:
            self._running[made.job_id][1].tell(signum)

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.dismiss()
            self._waiting = None
