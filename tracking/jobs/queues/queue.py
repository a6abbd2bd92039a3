"""What jobs are given to: this machine, sbatch's queue, or the nodes of an allocation by srun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from conf.schema import RunConfig
from tracking.jobs.node import JobState, Ticket
from tracking.record import run_lock


class Queue(Protocol):
    at_once: int  # how many jobs run together at most
    outlives: bool  # whether what was submitted goes on without this process
    poll_sec: float  # how long to wait between two questions about all jobs
    settling_sec: float  # how long what a job wrote last may take to be seen here

    def check(self, configs: Sequence[RunConfig]) -> None:
        """Raise ConfigError for what the queue would refuse."""

    def expect(self) -> None:
        """Do ahead what can be done for a next job."""
        return

    def has_room(self, config: RunConfig) -> bool:
        """Whether such a job, of those that may run together, can be submitted now."""
        return True

    def submit(self, owner: run_lock.Owner, config: RunConfig, name: str, started: float, after: str = "") -> Ticket:
        """Have the run in the owner's folder run, once job `after` has ended. Raises ConfigError, slurm.Away, OSError.

        Whoever then answers for the folder has its lock, or is named by the ticket. `started` is when the job's command
        began, in seconds of the monotonic clock.
        """

    def states(self, tickets: Sequence[Ticket]) -> dict[str, JobState]:
        """By job id, of those that are known. Raises slurm.Away."""

    def cancel(self, tickets: Sequence[Ticket], signum: int) -> None:
        """Have these jobs end, as `signum` told this process. Raises slurm.Away, ConfigError."""

    def close(self) -> None:
        """Leave nothing behind that no job has."""
        return
