"""Prepares batches in a background thread while the device works on earlier ones."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

T = TypeVar("T")


@dataclass(frozen=True)
class _Failure:
    error: BaseException


_END = object()


def prefetch(iterator: Iterator[T], device: torch.device, depth: int = 2) -> Iterator[T]:
    """What `iterator` yields, prepared in a thread up to `depth` items ahead; nothing starts before the first next().

    On a GPU the thread works on a stream of its own, and the consumer's stream waits for each item on the device; the
    host does not. That stream goes first: its few kernels would wait for a whole step's otherwise, and the next step
    for them. What the iterator raises comes out here. Closing this generator, which dropping it does too, stops
    the thread after the item it is at and closes the iterator.
    """
    assert depth > 0
    on_gpu = device.type == "cuda"
    stream = torch.cuda.Stream(device, priority=-1) if on_gpu else None
    if stream:
        stream.wait_stream(torch.cuda.current_stream(device))  # for what the iterator uses and was made before
    items: queue.SimpleQueue[Any] = queue.SimpleQueue()
    slots = threading.Semaphore(depth)
    stopped = threading.Event()

    def produce() -> None:
        context: AbstractContextManager[Any] = torch.cuda.stream(stream) if on_gpu else nullcontext()
        try:
            with context:  # the current stream, and the current device, are a thread's own
                while slots.acquire() and not stopped.is_set():
                    item = next(iterator, _END)
                    items.put((item, stream.record_event() if stream else None))
                    if item is _END:
                        break
                    del item  # or it would hold its memory while the next one is made
        except BaseException as error:  # the consumer's to raise
            items.put((_Failure(error), None))
        finally:
            if hasattr(iterator, "close"):
                iterator.close()

    thread = threading.Thread(target=produce, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item, ready = items.get()
            slots.release()
            if isinstance(item, _Failure):
                raise item.error
            if item is _END:
                return
            if ready is not None:
                current = torch.cuda.current_stream(device)
                current.wait_event(ready)
                _record_stream(item, current)
            yield item
            del item  # or it would hold its memory while the next one is waited for
    finally:
        stopped.set()
        slots.release()
        thread.join()


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
