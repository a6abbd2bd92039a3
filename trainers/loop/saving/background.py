"""Writes a checkpoint beside the training: what is to be written is copied at once, and a thread does the rest.

A copy on the device takes a fraction of a step. The thread brings it to the host on a stream of its own, gathers what
each process has of its own, and writes the file. The threads have a group of their own: they and the training must not
meet in one.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tracking.machine.environment import available_bytes
from tracking.measure.training import Ranks
from trainers.loop.saving.whole_files import WholeFiles
from trainers.workload import Shard

ROOM = 0.9  # of the memory that is free may be taken


@dataclass
class Job:
    """A checkpoint to be written: its content, and what every process has of its own.

    Functions in `late` return more of the latter, once the device has passed the step. `sec` and `error` come of it.
    """

    path: Path
    step: int
    content: dict[str, Any]
    own: dict[str, Any]
    late: dict[str, Callable[[], Any]] = field(default_factory=dict)
    beside: bool = False
    ready: torch.cuda.Event | None = None  # From then on the tensors on the device hold what is to be written.
    sec: float = 0.0
    error: str = ""


class Writer:
    """Each process has one, and the first one's writes the files. At most one file is being written.

    Making one and `write` are collective calls. `place` is where in a checkpoint's callbacks the processes' own lie.
    """

    def __init__(self, shard: Shard, place: str) -> None:
        self._shard, self._place = shard, place
        self._ranks = Ranks.joined()
        self._files = WholeFiles()
        self._stream = torch.cuda.Stream(shard.device) if shard.device.type == "cuda" else None
        self._thread: threading.Thread | None = None
        self._copies: tuple[Any, Any] = (None, None)  # Their memory is used again: new memory takes long to come by.
        self._written: list[Job] = []

    def write(self, job: Job, beside: bool) -> bool:
        """Write a checkpoint of what the tensors hold now, in a thread or before this returns.

        Waits for the one before. Returns whether a thread writes it: a rank may fail to copy, for lack of memory. Where
        none does, all ranks return together.
        """
        self.wait()
        job.beside = beside and self._copied(job)
        if self._stream is not None:
            job.ready = torch.cuda.current_stream(self._shard.device).record_event()
        if not job.beside:
            self._write(job)
            self._ranks.wait()
            return False
        self._thread = threading.Thread(target=self._write, args=(job,), name="checkpoint", daemon=True)
        self._thread.start()
        return True

    def busy(self) -> bool:
        """Whether this process is still writing."""
        return self._thread is not None and self._thread.is_alive()

    def _copied(self, job: Job) -> bool:
        """Put copies in the place of a job's tensors; False on all ranks where one of them fails."""
        failed = False
        try:
            self._copies = copied(job.content, self._copies[0]), copied(job.own, self._copies[1])
        except Exception as error:  # The training goes on, and waits for its files from here on.
            logging.getLogger(__name__).warning("no copy for a checkpoint: %s: %s", type(error).__name__, error)
            failed = True
        if self._ranks.largest(failed):
            self._copies = (None, None)
            if self._stream is not None:
                torch.cuda.empty_cache()  # Parts of the copies would split the memory that steps need.
            return False
        job.content, job.own = self._copies
        return True

    def written(self) -> list[Job]:
        """The checkpoints that were written, or failed, since the last call."""
        done, self._written = self._written, []
        return done

    def wait(self) -> None:
        """Until nothing is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _write(self, job: Job) -> None:
        began = time.perf_counter()
        try:
            if not job.error:
                self._bring(job)
        except Exception as error:  # Every rank has to come to the exchange: the others wait there.
            job.error = in_words(error)
        try:
            job.error = "; ".join(f"rank {i}: {error}" for i, error in enumerate(self._ranks.words(job.error)) if error)
            if not job.error:
                self._save(job)
        except Exception as error:  # The training goes on without this one, whatever was in its way.
            job.error = in_words(error)
        job.sec = time.perf_counter() - began
        job.content, job.own, job.late = {}, {}, {}
        self._written.append(job)

    def _bring(self, job: Job) -> None:
        """Bring what a job holds to the host, on a stream that is not the training's.

        A file that the training waits for is written from the device: the host may have no room for all of it at once.
        """
        if self._stream is not None:
            torch.cuda.set_device(self._shard.device)  # The current device is a thread's own.
            with torch.cuda.stream(self._stream):
                if job.ready is not None:
                    job.ready.synchronize()
                job.content = on_host(job.content) if job.beside else job.content
                job.own = on_host(job.own)
        job.own = job.own | {key: late() for key, late in job.late.items()}

    def _save(self, job: Job) -> None:
        states = self._gathered(job.own)
        if self._shard.rank == 0:
            job.content["callbacks"][self._place] = {key: [state[key] for state in states] for key in job.own}
            self._files.save_checkpoint(job.content, job.path)
            job.error = self._files.error

    def _gathered(self, own: dict[str, Any]) -> list[Any]:
        """By rank, what each has; on the first one alone."""
        if self._shard.world_size == 1:
            return [own]
        states: list[Any] | None = [None] * self._shard.world_size if self._shard.rank == 0 else None
        dist.gather_object(own, states, dst=0, group=self._ranks.group)
        return states or []


def in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def copied(value: Any, into: Any = None) -> Any:
    """A copy that shares no memory with what it was made of; tensors stay on their device.

    It takes the memory of an earlier copy, `into`, as far as that is alike.
    """
    if isinstance(value, torch.Tensor):
        alike = isinstance(into, torch.Tensor) and (into.shape, into.dtype, into.device) == (
            value.shape, value.dtype, value.device,
        )  # fmt: skip
        return into.copy_(value.detach()) if alike else value.detach().clone()
    if isinstance(value, dict):
        before = into if isinstance(into, dict) else {}
        return with_values(value, lambda key, inner: copied(inner, before.get(key)))
    if type(value) in (list, tuple):
        alike = type(into) is type(value) and len(into) == len(value)
        return type(value)(map(copied, value, into if alike else [None] * len(value)))
    return copy.deepcopy(value)


def on_host(value: Any) -> Any:
    """The same on the host; what is there already is not copied."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu")
    if isinstance(value, dict):
        return with_values(value, lambda key, inner: on_host(inner))
    return type(value)(map(on_host, value)) if type(value) in (list, tuple) else value


def with_values(mapping: dict[Any, Any], change: Callable[[Any, Any], Any]) -> dict[Any, Any]:
    """The same mapping with values of `change(key, value)`; a defaultdict keeps its factory."""
    changed = copy.copy(mapping)
    for key, inner in mapping.items():
        changed[key] = change(key, inner)
    return changed


def num_bytes(value: Any) -> int:
    """What the tensors in a value take."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    inner = value.values() if isinstance(value, Mapping) else value if type(value) in (list, tuple) else ()
    return sum(map(num_bytes, inner))


def has_room(size: int, device: torch.device) -> bool:
    """Whether copies of so many bytes fit on the device, if it is a GPU, and on the host."""
    if size > ROOM * available_bytes():
        return False
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    # Between steps little is allocated. Each step needs its activations again, so what counts is the peak.
    spare = torch.cuda.memory_reserved(device) - torch.cuda.max_memory_allocated(device)
    return size <= ROOM * (free + spare)
