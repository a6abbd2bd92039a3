"""Writes a checkpoint while the training goes on: its tensors are copied at once, and a thread does the rest.

A copy on the device takes a fraction of a step. The thread moves it to the host on its own CUDA stream, gathers the
state of each process, and writes the file. The threads have their own process group: their collective calls must not
mix with the training's.
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

ROOM = 0.9  # share of the free memory that copies may take


@dataclass
class Job:
    """A checkpoint to be written: the content that all processes share, and this process's own state.

    Functions in `late` return more of this process's state once the device has passed the step. Writing sets `sec` and
    `error`.
    """

    path: Path
    step: int
    content: dict[str, Any]
    own: dict[str, Any]
    late: dict[str, Callable[[], Any]] = field(default_factory=dict)
    in_background: bool = False
    ready: torch.cuda.Event | None = None  # Once it has passed, the tensors on the device hold the state to write.
    sec: float = 0.0
    error: str = ""


class Writer:
    """Writes checkpoints, one at a time. Every process has a writer, and that of rank 0 writes the files.

    The constructor and `write` are collective calls. The processes' own states go to `place` in the checkpoint's
    "callbacks".
    """

    def __init__(self, shard: Shard, place: str) -> None:
        self._shard, self._place = shard, place
        self._ranks = Ranks.joined()
        self._files = WholeFiles()
        self._stream = torch.cuda.Stream(shard.device) if shard.device.type == "cuda" else None
        self._thread: threading.Thread | None = None
        self._copies: tuple[Any, Any] = (None, None)  # Reused for the next checkpoint: allocating takes long.
        self._written: list[Job] = []

    def write(self, job: Job, in_background: bool) -> bool:
        """Write a checkpoint of what the tensors hold now, in a thread or before this returns.

        Waits for the previous one. Returns whether a thread writes it: if a rank has no memory for copies, no thread
        does, and all ranks return together.
        """
        self.wait()
        job.in_background = in_background and self._copied(job)
        if self._stream is not None:
            job.ready = torch.cuda.current_stream(self._shard.device).record_event()
        if not job.in_background:
            self._write(job)
            self._ranks.wait()
            return False
        self._thread = threading.Thread(target=self._write, args=(job,), name="checkpoint", daemon=True)
        self._thread.start()
        return True

    def busy(self) -> bool:
        """Return whether this process is still writing."""
        return self._thread is not None and self._thread.is_alive()

    def _copied(self, job: Job) -> bool:
        """Replace a job's tensors by copies; return False on all ranks if one of them fails."""
        failed = False
        try:
            self._copies = copied(job.content, self._copies[0]), copied(job.own, self._copies[1])
        except Exception as error:  # The training goes on, and from now on waits while checkpoints are written.
            logging.getLogger(__name__).warning(
                "a checkpoint could not be copied (%s: %s); training waits while it is written",
                type(error).__name__, error,
            )  # fmt: skip
            failed = True
        if self._ranks.largest(failed):
            self._copies = (None, None)
            if self._stream is not None:
                torch.cuda.empty_cache()  # Blocks of the failed copies would fragment the memory that steps need.
            return False
        job.content, job.own = self._copies
        return True

    def written(self) -> list[Job]:
        """Return the checkpoints that were written, or failed, since the last call."""
        done, self._written = self._written, []
        return done

    def wait(self) -> None:
        """Wait until no thread is writing."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _write(self, job: Job) -> None:
        began = time.perf_counter()
        try:
            if not job.error:
                self._bring(job)
        except Exception as error:  # This rank still has to join the collective call below, where the others wait.
            job.error = in_words(error)
        try:
            job.error = "; ".join(f"rank {i}: {error}" for i, error in enumerate(self._ranks.words(job.error)) if error)
            if not job.error:
                self._save(job)
        except Exception as error:  # Whatever failed, the training goes on without this checkpoint.
            job.error = in_words(error)
        job.sec = time.perf_counter() - began
        job.content, job.own, job.late = {}, {}, {}
        self._written.append(job)

    def _bring(self, job: Job) -> None:
        """Move a job's tensors to the host, on another stream than the training's.

        Without a thread the content stays on the device and is written from there: the host may not have room for all
        of it at once.
        """
        if self._stream is not None:
            torch.cuda.set_device(self._shard.device)  # Each thread has its own current device.
            with torch.cuda.stream(self._stream):
                if job.ready is not None:
                    job.ready.synchronize()
                job.content = on_host(job.content) if job.in_background else job.content
                job.own = on_host(job.own)
        job.own = job.own | {key: late() for key, late in job.late.items()}

    def _save(self, job: Job) -> None:
        states = self._gathered(job.own)
        if self._shard.rank == 0:
            job.content["callbacks"][self._place] = {key: [state[key] for state in states] for key in job.own}
            self._files.save_checkpoint(job.content, job.path)
            job.error = self._files.error

    def _gathered(self, rank_state: dict[str, Any]) -> list[Any]:
        """Return the states of all ranks, by rank, on rank 0; elsewhere nothing."""
        if self._shard.world_size == 1:
            return [rank_state]
        states: list[Any] | None = [None] * self._shard.world_size if self._shard.rank == 0 else None
        dist.gather_object(rank_state, states, dst=0, group=self._ranks.group)
        return states or []


def in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def copied(value: Any, into: Any = None) -> Any:
    """Return a deep copy; tensors stay on their device. It reuses the memory of an earlier copy, `into`, if alike."""
    if isinstance(value, torch.Tensor):
        reusable = isinstance(into, torch.Tensor) and (into.shape, into.dtype, into.device) == (
            value.shape, value.dtype, value.device,
        )  # fmt: skip
        return into.copy_(value.detach()) if reusable else value.detach().clone()
    if isinstance(value, dict):
        before = into if isinstance(into, dict) else {}
        return with_values(value, lambda key, inner: copied(inner, before.get(key)))
    if type(value) in (list, tuple):
        reusable = type(into) is type(value) and len(into) == len(value)
        return type(value)(map(copied, value, into if reusable else [None] * len(value)))
    return copy.deepcopy(value)


def on_host(value: Any) -> Any:
    """Return the value with its tensors on the host; tensors already there are not copied."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu")
    if isinstance(value, dict):
        return with_values(value, lambda key, inner: on_host(inner))
    return type(value)(map(on_host, value)) if type(value) in (list, tuple) else value


def with_values(mapping: dict[Any, Any], change: Callable[[Any, Any], Any]) -> dict[Any, Any]:
    """Return the mapping with each value replaced by `change(key, value)`; a defaultdict keeps its factory."""
    changed = copy.copy(mapping)
    for key, inner in mapping.items():
        changed[key] = change(key, inner)
    return changed


def num_bytes(value: Any) -> int:
    """Return the size of the tensors in a value, in bytes."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    inner = value.values() if isinstance(value, Mapping) else value if type(value) in (list, tuple) else ()
    return sum(map(num_bytes, inner))


def has_room(size: int, device: torch.device) -> bool:
    """Return whether copies of `size` bytes fit on the host and, if the device is a GPU, on the device."""
    if size > ROOM * available_bytes():
        return False
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    # Between steps little is allocated, but each step needs its activations again. So compare with the peak.
    spare = torch.cuda.memory_reserved(device) - torch.cuda.max_memory_allocated(device)
    return size <= ROOM * (free + spare)
