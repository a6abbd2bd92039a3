"""This machine as a queue: one job at a time, or several side by side, each in its own share."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from conf.schema import ConfigError, RunConfig
from tracking.jobs.handover import Assignment, Forks, ForkServers, SupervisorProcess
from tracking.jobs.node import JobState, Share, Ticket, machine_shares
from tracking.jobs.queues.queue import Queue
from tracking.machine.environment import nvml
from tracking.record import run_lock

KIND = "shared"
LOST_SEC = 120.0  # A supervisor that still runs this long after a stop signal is killed.


class Machine(Queue):
    """Runs jobs under supervisors that end with this launcher. `waiting` is a supervisor without a run yet."""

    outlives = False
    poll_sec = 0.1
    settling_sec = 0.0

    def __init__(self, at_once: int, waiting: SupervisorProcess | None = None) -> None:
        self.at_once = at_once
        self._waiting = waiting
        self._shares: list[Share] = []  # empty if each job has the whole machine
        self._divides_gpus = False  # a share holds one GPU, and a job takes as many shares as it has GPUs
        self._running: dict[str, tuple[list[int], SupervisorProcess]] = {}  # share numbers and supervisor, by job id
        self._cancelled_at = float("inf")  # monotonic seconds
        self._fork_servers: ForkServers | None = None
        self._has_several = False  # whether this launch has several jobs

    def check(self, configs: Sequence[RunConfig]) -> None:
        """Cut the machine into a share for each concurrent job; for a search, one for each GPU. Raises ConfigError."""
        self._has_several = len(configs) > 1
        if self.at_once == 1:
            return
        option = f"sweep.jobs_at_once={self.at_once}"
        if any(config.nodes > 1 for config in configs):
            raise ConfigError(f"{option}: only jobs with nodes=1 share a machine. Next: give nodes=1")
        if chosen := next((config.gpus for config in configs if isinstance(config.gpus, list)), None):
            raise ConfigError(
                f"gpus={chosen}: {option} gives each job its own GPUs. Next: give their number,"
                " and list the GPUs that may be used in CUDA_VISIBLE_DEVICES"
            )
        gpus = {gpu.uuid: machine_shares.numa_of_pci(nvml.bus_id(gpu.uuid)) for gpu in nvml.visible_gpus()}
        most_gpus = max(config.num_gpus() for config in configs)
        self._divides_gpus = most_gpus > 0 and any(config.search.name for config in configs)
        num_shares, gpus_each = (len(gpus), 1) if self._divides_gpus else (self.at_once, most_gpus)
        cores = machine_shares.cores_here()
        if self._divides_gpus and len(cores) < len(gpus):
            raise ConfigError(
                f"{option}: a search needs a core for each of the {len(gpus)} GPUs, but this machine has"
                f" {len(cores)} cores. Next: give sweep.jobs_at_once=1"
            )
        self._shares = machine_shares.cut(num_shares, cores, gpus, gpus_each)
        on_cpu = [config for config in configs if not (self._divides_gpus and config.on_gpu())]
        widest = max((config.cpu_processes for config in on_cpu), default=0)
        if widest > len(self._shares[0].threads):
            raise ConfigError(
                f"{option}: each job has {len(self._shares[0].threads)} cores, but cpu_processes={widest} need one"
                " each. Next: give fewer"
            )

    def expect(self) -> None:
        """Start the next job's supervisor ahead of time."""
        if self._waiting is None or self._waiting.ended() is not None:  # It may have been killed while it waited.
            self._waiting = SupervisorProcess()

    def submit(self, owner: run_lock.Owner, config: RunConfig, name: str, started: float, after: str = "") -> Ticket:
        numbers = self._free_shares(config)
        assert numbers is not None
        alone = self._is_alone(config)
        share = None if alone else machine_shares.joined([self._shares[number] for number in numbers])
        self.expect()
        supervisor, self._waiting = self._waiting, None
        assert supervisor is not None
        supervisor.assign(
            Assignment(
                owner.folder, owner.descriptor, started, config.timeout_sec,
                config.tracking.system_metrics_interval_sec, share.environment() if share else {}, self._forks(config),
            )
        )  # fmt: skip
        made = Ticket(KIND, str(supervisor.process.pid))
        self._running[made.job_id] = numbers, supervisor
        return made

    def _forks(self, config: RunConfig) -> Forks | None:
        """The servers that fork the job's worker; None if it is a new process, as for a single job."""
        several = self._has_several or config.search.phase
        if not several or config.nodes > 1 or config.is_program() or config.stack.kind == "container":
            return None
        self._fork_servers = self._fork_servers or ForkServers()
        return self._fork_servers.forks

    def has_room(self, config: RunConfig) -> bool:
        """Whether enough shares are free. A share is taken until its supervisor exits, soon after the run's result."""
        return self._free_shares(config) is not None

    def _is_alone(self, config: RunConfig) -> bool:
        """Whether the job has the whole machine; a search's deciding runs always have it."""
        return not self._shares or config.search.phase == "decide"

    def _free_shares(self, config: RunConfig) -> list[int] | None:
        """The numbers of the shares that the job would get now; None if it has to wait."""
        running = [numbers for numbers, supervisor in self._running.values() if supervisor.ended() is None]
        if self._is_alone(config):
            return None if running else list(range(len(self._shares)))
        taken = {number for numbers in running for number in numbers}
        free = [(number, share) for number, share in enumerate(self._shares) if number not in taken]
        return machine_shares.nearest(free, max(1, config.num_gpus()) if self._divides_gpus else 1)

    def states(self, tickets: Sequence[Ticket]) -> dict[str, JobState]:
        states = {}
        for made in tickets:
            numbers, supervisor = self._running[made.job_id]
            code = supervisor.ended()
            if code is None and time.monotonic() - self._cancelled_at > LOST_SEC:
                supervisor.tell(signal.SIGKILL)
            words = "RUNNING" if code is None else f"EXIT CODE {code}" if code else "COMPLETED"
            signum = -code if code is not None and code < 0 else 0
            states[made.job_id] = JobState(words, nodes=self._words(numbers), what="supervisor", signum=signum)
        return states

    def _words(self, numbers: Sequence[int]) -> str:
        whole = len(numbers) == len(self._shares)
        return "" if whole else str(machine_shares.joined([self._shares[number] for number in numbers]))

    def cancel(self, tickets: Sequence[Ticket], signum: int) -> None:
        """Tell all jobs to stop; a second call stops them without grace. They end soon after."""
        self._cancelled_at = min(self._cancelled_at, time.monotonic())
        for made in tickets:
            self._running[made.job_id][1].tell(signum)
        if self._fork_servers is not None:
            self._fork_servers.end()  # while the jobs end, since a server takes 0.1 s or more to free its memory

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.dismiss()
            self._waiting = None
        if self._fork_servers is not None:
            self._fork_servers.close()
            self._fork_servers = None
