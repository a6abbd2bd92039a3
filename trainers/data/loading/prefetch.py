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
ALIGNMENT = 256  # bytes that tensors in a buffer begin at multiples of, as the allocator's own do at more


@dataclass(frozen=True)
class _Failure:
    error: BaseException


_END = object()


class _Producer:
    """The thread, which works up to `depth` items ahead of those that were taken."""

    def __init__(self, iterator: Iterator[Any], stream: torch.cuda.Stream | None, depth: int) -> None:
        self._iterator, self._stream = iterator, stream
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._slots = threading.Semaphore(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="prefetch", daemon=True)
        self._thread.start()

    def take(self) -> tuple[Any, torch.cuda.Event | None]:
        """The next item, a _Failure or _END, and the event after which its tensors can be read."""
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
            if self._stream:  # the current device is a thread's own, as the current stream is
                # The first GPU, until it is told: leaving the stream would go back there, and PyTorch would set up that
                # GPU for this process, too, which takes 0.15 s and half a gigabyte of it.
                torch.cuda.set_device(self._stream.device)
            with stream:
                while self._slots.acquire() and not self._stopped.is_set():
                    item = next(self._iterator, _END)
                    self._items.put((item, self._stream.record_event() if self._stream else None))
                    if item is _END:
                        break
                    del item  # Otherwise it would hold its memory while the next one is made.
        except BaseException as error:  # the consumer's to raise
            self._items.put((_Failure(error), None))
        finally:
            if hasattr(self._iterator, "close"):
                self._iterator.close()


def prefetch(iterator: Iterator[T], device: torch.device, depth: int = 2) -> Iterator[T]:
    """What `iterator` yields, prepared in a thread up to `depth` items ahead; nothing starts before the first next().

    On a GPU the thread works on a stream of its own, and the consumer's stream waits for each item on the device; the
    host does not. That stream goes first: its few kernels would wait for a whole step's otherwise, and the next step
    for them. What the iterator raises comes out here. Closing this generator, which dropping it does too, stops
    the thread after the item it is at and closes the iterator.
    """
    assert depth > 0
    stream = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None
    if stream:
        stream.wait_stream(torch.cuda.current_stream(device))  # The iterator may use what that one has still to make.
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
            del item  # Otherwise it would hold its memory while the next one is waited for.
    finally:
        producer.stop()


def to_device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """A copy that the host does not wait for, through pinned memory."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def all_to_device(arrays: Mapping[str, np.ndarray], device: torch.device) -> dict[str, torch.Tensor]:
    """As `to_device`, in one transfer: each is a view of one buffer, which lives as long as any of them.

    Of small tensors the transfers, and what the allocators note of each, keep the host longer than the bytes do.
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
    """Keep the memory of an item's tensors from being used again before `stream` is done with it."""
    if isinstance(item, torch.Tensor):
        if item.is_cuda:
            item.record_stream(stream)
    elif isinstance(item, dict):
        for value in item.values():
            _record_stream(value, stream)
    elif isinstance(item, list | tuple):
        for value in item:
            _record_stream(value, stream)
