"""Prepares batches in a background thread while the device works on earlier ones."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

T = TypeVar("T")
ALIGNMENT = 256  # Tensors in a buffer start at multiples of so many bytes; those of the allocator start at larger ones.


@dataclass(frozen=True)
class _Failure:
    error: BaseException


_END = object()


class _Producer:
    """The thread, which works up to `depth` items ahead of the consumer."""

    def __init__(self, iterator: Iterator[Any], stream: torch.cuda.Stream | None, depth: int) -> None:
        self._iterator, self._stream = iterator, stream
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._slots = threading.Semaphore(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="prefetch", daemon=True)
        self._thread.start()

    def take(self) -> tuple[Any, torch.cuda.Event | None]:
        """Return the next item, a _Failure or _END, and the event after which its tensors can be read."""
        taken: tuple[Any, torch.cuda.Event | None] = self._items.get()
        self._slots.release()
        return taken

    def stop(self) -> None:
        self._stopped.set()
        self._slots.release()
        self._thread.join()

    def _produce(self) -> None:
        stream: AbstractContextManager[Any] = torch.cuda.stream(self._stream) if self._stream else nullcontext()
        try:
            if self._stream:
                # A thread's current device is the first GPU. Without this call, leaving the stream would return to that
                # GPU, and PyTorch would initialise it for this process, too (0.15 s, half a gigabyte of its memory).
                torch.cuda.set_device(self._stream.device)
            with stream:
                while self._slots.acquire() and not self._stopped.is_set():
                    item = next(self._iterator, _END)
                    self._items.put((item, self._stream.record_event() if self._stream else None))
                    if item is _END:
                        break
                    del item  # Free its memory before the next one is made.
        except BaseException as error:  # The consumer raises it.
            self._items.put((_Failure(error), None))
        finally:
            if hasattr(self._iterator, "close"):
                self._iterator.close()


def prefetch(iterator: Iterator[T], device: torch.device, depth: int = 2) -> Iterator[T]:
    """Yield the iterator's items, prepared in a thread up to `depth` items ahead; it starts at the first next().

    On a GPU the thread has its own stream, and the consumer's stream, not the host, waits for each item. The thread's
    stream has a higher priority: otherwise its few kernels would wait for those of a whole step, and the next step for
    them. Exceptions of the iterator are raised here. Closing or dropping this generator stops the thread after its
    current item, and closes the iterator.
    """
    assert depth > 0
    stream = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None
    if stream:
        stream.wait_stream(torch.cuda.current_stream(device))  # The iterator may use results of work queued there.
    producer = _Producer(iterator, stream, depth)
    try:
        while True:
            item, ready = producer.take()
            if isinstance(item, _Failure):
                raise item.error
            if item is _END:
                return
            if ready is not None:
                current = torch.cuda.current_stream(device)
                current.wait_event(ready)
                _record_stream(item, current)
            yield item
            del item  # Free its memory before the wait for the next one.
    finally:
        producer.stop()


def to_device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return a copy on the device, through pinned memory, without a wait on the host."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def all_to_device(arrays: Mapping[str, np.ndarray], device: torch.device) -> dict[str, torch.Tensor]:
    """Copy arrays as `to_device` does, in one transfer; the results are views of one buffer.

    For small tensors, separate transfers and allocations would take the host longer than the bytes themselves.
    """
    num_bytes = [(array.nbytes, -array.nbytes % ALIGNMENT) for array in arrays.values()]
    pieces = [size for pair in num_bytes for size in pair]
    host = torch.empty(sum(pieces), dtype=torch.uint8, pin_memory=device.type == "cuda")
    buffer, start = host.numpy(), 0
    for array, (size, gap) in zip(arrays.values(), num_bytes, strict=True):
        buffer[start : start + size].view(array.dtype).reshape(array.shape)[...] = array
        start += size + gap
    parts = host.to(device, non_blocking=True).split(pieces)[::2]
    types = [torch.from_numpy(np.empty(0, array.dtype)).dtype for array in arrays.values()]
    return {
        name: part.view(dtype).view(array.shape)
        for (name, array), part, dtype in zip(arrays.items(), parts, types, strict=True)
    }


def _record_stream(item: Any, stream: torch.cuda.Stream) -> None:
    """Keep the memory of an item's tensors from being reused before `stream` has finished with it."""
    if isinstance(item, torch.Tensor):
        if item.is_cuda:
            item.record_stream(stream)
    elif isinstance(item, dict):
        for value in item.values():
            _record_stream(value, stream)
    elif isinstance(item, list | tuple):
        for value in item:
            _record_stream(value, stream)
