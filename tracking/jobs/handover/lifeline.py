"""Tells whether the starter of this process is alive, by a pipe that only the starter holds open.

The kernel closes the pipe however the starter dies, and it stays closed, so late readers see it, too. The parent's
process id would not do: another parent takes a dead one's place.
"""

from __future__ import annotations

import select
import signal
import threading
from dataclasses import dataclass

LAUNCHER, STEP = 0, 1  # standard input comes from a launcher, standard output goes to slurmstepd
OF_KIND = {"none": (LAUNCHER,), "here": (LAUNCHER, STEP), "slurm": (STEP,)}  # by cluster.kind


@dataclass(frozen=True)
class Lifeline:
    """Pipes that only the starter of this process holds open."""

    descriptors: tuple[int, ...]

    @classmethod
    def of(cls, cluster_kind: str) -> Lifeline:
        """The lifeline of a supervisor. Slurm's jobs outlive their launcher."""
        return cls(OF_KIND[cluster_kind])

    def cut(self, within_sec: float | None = 0.0) -> int | None:
        """The first descriptor whose other end was closed within this time; None if all are open."""
        poller = select.poll()
        for descriptor in self.descriptors:
            poller.register(descriptor, 0)  # with an empty mask, the kernel reports errors and hang-ups only
        ready = poller.poll(None if within_sec is None else 1e3 * within_sec)
        return min((descriptor for descriptor, _ in ready), default=None)

    def watch(self) -> None:
        """Send this process SIGTERM as soon as an end is closed."""
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        self.cut(None)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGTERM)  # to this thread: it may be asleep, and only it handles signals
