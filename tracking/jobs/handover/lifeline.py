"""Tells whether the starter of this process is alive, by a pipe that only the starter holds open.

The kernel closes the pipe however the starter dies, and it stays closed, so late readers see it, too. The parent's
process id tells less: after a death, another parent takes its place.
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
    descriptors: tuple[int, ...]

    @classmethod
    def of(cls, cluster_kind: str) -> Lifeline:
        """What a supervisor hangs on. Slurm's jobs go on without their launcher."""
        return cls(OF_KIND[cluster_kind])

    def cut(self, within_sec: float | None = 0.0) -> int | None:
        """The descriptor whose other end is gone, once it is or when the time is up; None where all are there."""
        poller = select.poll()
        for descriptor in self.descriptors:
            poller.register(descriptor, 0)  # of what is not asked for, the kernel reports errors and hang-ups alone
        ready = poller.poll(None if within_sec is None else 1e3 * within_sec)
        return min((descriptor for descriptor, _ in ready), default=None)

    def watch(self) -> None:
        """Send this process SIGTERM as soon as an end is gone."""
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        self.cut(None)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGTERM)  # not to any thread: the main one may be asleep
