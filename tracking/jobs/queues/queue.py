"""The interface of a queue: this machine, sbatch, or srun within an allocation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from conf.schema import RunConfig
from tracking.jobs.node import JobState, Ticket
from tracking.record import run_lock


class Queue(Protocol):
    at_once: int  # most jobs that run together
    outlives: bool  # whether submitted jobs keep running without this process
    poll_sec: float  # interval between two queries of all jobs' states
    settling_sec: float  # longest delay until a job's last write is visible here

    def check(self, configs: Sequence[RunConfig]) -> None:
        """Raise ConfigError for jobs that the queue would refuse."""

    def expect(self) -> None:
        """Prepare for a next job ahead of time."""
        return

    def has_room(self, config: RunConfig) -> bool:
        """Whether the queue has room for this job beside those that run now."""
        return True

    def submit(self, owner: run_lock.Owner, config: RunConfig, name: str, started: float, after: str = "") -> Ticket:
        """Submit the run in the owner's folder; it starts once job `after` has ended.

        The process that then owns the folder holds its lock or is named by the ticket. `started` is when the job's
        command began, in monotonic seconds. Raises ConfigError, slurm.Away, OSError.
        """

    def states(self, tickets: Sequence[Ticket]) -> dict[str, JobState]:
        """States of the jobs that the queue knows, by `Ticket.asked`. Raises slurm.Away."""

    def cancel(self, tickets: Sequence[Ticket], signum: int) -> None:
        """Cancel these jobs; `signum` is the signal that this process got. Raises slurm.Away, ConfigError."""

    def close(self) -> None:
        """Release what no job uses."""
        return
