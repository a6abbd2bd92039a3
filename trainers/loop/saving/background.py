"""Writes a checkpoint while the training goes on: its tensors are copied at once, and a thread does the rest.

A copy on the device takes a fraction of a step. The thread moves the copy to the host on its own CUDA stream. Then it
gathers the state of each process, writes the file and deletes older files. The threads have their own process group:
their collective calls must not mix with the training's.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tracking.measure.training import Ranks
from tracking.record import checkpoints
from trainers.loop.saving.copies import DeviceCopies, copied, on_host
from trainers.loop.saving.whole_files import WholeFiles
from trainers.workload import Shard

SWITCH_SEC = 1e-4  # how long a thread may keep Python's GIL while another one waits for it


class Stopwatch:
    """Measures named parts of a task, in milliseconds."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self._since = time.perf_counter()

    def ended(self, part: str) -> None:
        """Note that a part has ended, and that the next one begins."""
        now = time.perf_counter()
        self.parts[f"{part}_ms"] = round(1e3 * (now - self._since), 3)
        self._since = now


@dataclass
class Job:
    """A checkpoint to be written: the content that all processes share, and this process's own state.

    Functions in `late` return more of this process's state once the device has passed the step. Writing sets `sec`,
    `parts` and `error`.
    """

    path: Path
    step: int
    content: dict[str, Any]
    own: dict[str, Any]
    late: dict[str, Callable[[], Any]] = field(default_factory=dict)
    in_background: bool = False
    # The device makes the copies between these two events. After `ready`, the job's tensors hold the state to write.
    begins: torch.cuda.Event | None = None
    ready: torch.cuda.Event | None = None
    sec: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)  # of `sec`, in milliseconds
    error: str = ""


class Writer:
    """Writes checkpoints, one at a time. Every process has a writer; rank 0's writes the files.

    The constructor and `write` are collective calls. The processes' own states go to `place` in the checkpoint's
    "callbacks".
    """

    def __init__(self, shard: Shard, place: str) -> None:
        self._shard, self._place = shard, place
        self._ranks = Ranks.connect()
        self._files = WholeFiles()
        self._stream = torch.cuda.Stream(shard.device) if shard.device.type == "cuda" else None
        self._thread: threading.Thread | None = None
        self._copies: Any = None  # On a CPU; the next checkpoint reuses its memory.
        self._on_device = DeviceCopies(shard.device)
        self._written: list[Job] = []

    def make_room(self, size: int) -> None:
        """Allocate the memory of a GPU's copies. A failure is not raised here: copying will fail too, and report it."""
        if self._stream is not None:
            with suppress(RuntimeError):
                self._on_device.make_room(size)

    def write(self, job: Job, in_background: bool) -> bool:
        """Write a checkpoint of what the tensors hold now, in a thread or before this returns.

        Waits for the previous one. Returns whether a thread writes it: if a rank has no memory for copies, no thread
        does, and all ranks return together.
        """
        self.wait()
        job.begins = self._marked()
        job.in_background = in_background and self._copied(job)
        job.ready = self._marked()
        if not job.in_background:
            self._write(job)
            self._ranks.wait()
            return False
        self._thread = threading.Thread(target=self._write_beside, args=(job,), name="checkpoint", daemon=True)
        self._thread.start()
        return True

    def _marked(self) -> torch.cuda.Event | None:
        if self._stream is None:
            return None
        mark = torch.cuda.Event(enable_timing=True)
        torch.cuda.current_stream(self._shard.device).record_event(mark)
        return mark

    def busy(self) -> bool:
        """Return whether this process is still writing."""
        return self._thread is not None and self._thread.is_alive()

    def _copied(self, job: Job) -> bool:
        """Replace a job's tensors by copies; return False on all ranks if one of them fails."""
        failed = False
        try:
            state = (job.content, job.own)
            if self._stream is not None:
                copies = self._on_device.of(state)
            else:
                copies = self._copies = copied(state, self._copies)
        except Exception as error:  # The training continues, and from now on waits while checkpoints are written.
            logging.getLogger(__name__).warning(
                "a checkpoint could not be copied (%s: %s); training waits while it is written",
                type(error).__name__, error,
            )  # fmt: skip
            failed = True
        if self._ranks.largest(failed):
            self._copies = None
            self._on_device.forget()
            if self._stream is not None:
                torch.cuda.empty_cache()  # Blocks of the failed copies would fragment the memory that steps need.
            return False
        job.content, job.own = copies
        return True

    def written(self) -> list[Job]:
        """Return the checkpoints that were written, or failed, since the last call."""
        written, self._written = self._written, []
        return written

    def wait(self) -> None:
        """Wait until no thread is writing."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _write_beside(self, job: Job) -> None:
        with quick_switches():
            self._write(job)

    def _write(self, job: Job) -> None:
        began, watch = time.perf_counter(), Stopwatch()
        try:
            if not job.error:
                self._bring(job, watch)
        except Exception as error:  # This rank still has to join the collective call below, where the others wait.
            job.error = in_words(error)
        try:
            errors = self._ranks.gather_texts(job.error)
            job.error = "; ".join(f"rank {rank}: {error}" for rank, error in enumerate(errors) if error)
            if not job.error:
                self._save(job, watch)
        except Exception as error:  # Whatever failed, the training continues without this checkpoint.
            job.error = in_words(error)
        job.sec, job.parts = time.perf_counter() - began, job.parts | watch.parts
        job.content, job.own, job.late = {}, {}, {}
        self._written.append(job)

    def _bring(self, job: Job, watch: Stopwatch) -> None:
        """Move a job's tensors to the host, on another stream than the training's.

        Without a thread the content stays on the device and is written from there: the host may not have room for all
        of it at once.
        """
        if self._stream is not None:
            torch.cuda.set_device(self._shard.device)  # Each thread has its own current device.
            with torch.cuda.stream(self._stream):
                if job.begins is not None and job.ready is not None:
                    job.ready.synchronize()
                    watch.ended("device")
                    job.parts["device_copy_ms"] = round(job.begins.elapsed_time(job.ready), 3)
                if job.in_background:
                    job.content, job.own = self._on_device.on_host((job.content, job.own))
                else:
                    job.own = on_host(job.own)
        watch.ended("to_host")
        job.own = job.own | {key: late() for key, late in job.late.items()}
        watch.ended("late")

    def _save(self, job: Job, watch: Stopwatch) -> None:
        states = self._gathered(job.own)
        watch.ended("gather")
        if self._shard.rank == 0:
            job.content["callbacks"][self._place] = {key: [state[key] for state in states] for key in job.own}
            self._files.save_checkpoint(job.content, job.path)
            watch.ended("file")
            job.error = self._files.error
            if not job.error:
                checkpoints.prune(job.path.parent.parent)  # Here, since deleting a large file takes long.
                watch.ended("prune")

    def _gathered(self, rank_state: dict[str, Any]) -> list[Any]:
        """Return the states of all ranks in order on rank 0; [] on the others."""
        if self._shard.world_size == 1:
            return [rank_state]
        states: list[Any] | None = [None] * self._shard.world_size if self._shard.rank == 0 else None
        dist.gather_object(rank_state, states, dst=0, group=self._ranks.group)
        return states or []


@contextmanager
def quick_switches() -> Iterator[None]:
    """Have Python switch between threads often.

    The training's thread releases the GIL at each kernel launch. A thread that pickles would hand it back after 5 ms.
    After some launches the GPU would have no work.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_SEC))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
