"""Copies of a checkpoint's tensors, in memory that is kept from one checkpoint to the next.

A copy costs the training thread some launches. On a GPU all tensors are copied into one block of its memory, and later
to the host in pieces through pinned memory. Allocating such blocks takes up to a second, so it comes before the clock.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import torch

from tracking.machine.environment import available_bytes

SHARED_POOL = (0, 0)  # PyTorch's name of the memory that belongs to no CUDA graph
ROOM = 0.9  # share of the free memory that copies may take
ALIGNMENT = 256  # bytes, as the allocator of the GPU's memory
PIECE_BYTES = 2**24  # size of the pinned memory
ATOMS = frozenset({int, float, bool, str, bytes, type(None)})  # values that a copy may share
PLAIN = (torch.Tensor, torch.nn.Parameter)  # A subclass may hold its values elsewhere.


class DeviceCopies:
    """Copies of tensors on a device, in one block of its memory, and of the block on the host.

    The next call of `of` overwrites both. `allocate` is for tests.
    """

    def __init__(self, device: torch.device, allocate: Callable[..., torch.Tensor] = torch.empty) -> None:
        self._device, self._allocate = device, allocate
        self._block = self._on_host = self._pinned = torch.empty(0, dtype=torch.uint8)
        self._places: list[tuple[torch.Tensor, torch.Tensor]] = []  # Each tensor's copy, on the device and on the host.
        self._firsts: list[int] = []  # where each begins in the block, in bytes
        self._others: list[Any] = []  # copies of other tensors, such as those on the host
        self._used = 0

    def make_room(self, size: int) -> None:
        """Allocate memory for copies of `size` bytes, unless it is there."""
        if size <= len(self._block):
            return
        self.forget()
        block = self._allocate(size, dtype=torch.uint8, device=self._device)
        # The system provides memory only when it is written, so write it now.
        self._on_host = self._allocate(size, dtype=torch.uint8).zero_()
        on_gpu = self._device.type == "cuda"
        self._pinned = self._allocate(min(size, PIECE_BYTES), dtype=torch.uint8, pin_memory=on_gpu)
        self._block = block

    def forget(self) -> None:
        """Free the memory."""
        self._block = self._on_host = self._pinned = torch.empty(0, dtype=torch.uint8)
        self._places, self._firsts, self._others = [], [], []

    def of(self, value: Any) -> Any:
        """Return a deep copy whose tensors on the device are in the block. The device copies them later."""
        sizes: list[int] = []
        with_tensors(value, lambda tensor: sizes.append(self._placeable(tensor) * tensor.nbytes), deep=False)
        self.make_room(sum(aligned(size, ALIGNMENT) for size in sizes))
        pairs: defaultdict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = defaultdict(lambda: ([], []))
        self._used, before = 0, iter(self._others)
        self._others, numbers = [], count()

        def place(tensor: torch.Tensor) -> Any:
            if not self._placeable(tensor):
                self._others.append(copied(tensor, next(before, None)))
                return self._others[-1]
            placed = self._placed(next(numbers), tensor)
            copies, originals = pairs[tensor.dtype]
            copies.append(placed)
            originals.append(tensor)
            return placed

        placed = with_tensors(value, place)
        with torch.no_grad():
            for copies, originals in pairs.values():
                torch._foreach_copy_(copies, originals)  # A few kernels for all: each launch may wait in a queue.
        return placed

    def _placeable(self, tensor: torch.Tensor) -> bool:
        return tensor.device == self._device and type(tensor) in PLAIN and tensor.numel() > 0

    def _placed(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        """Return the block's part for the `number`-th tensor: the previous one, if the layout is the same."""
        first = self._used
        self._used += aligned(tensor.nbytes, ALIGNMENT)
        if number < len(self._places):
            placed = self._places[number][0]
            if self._firsts[number] == first and same_layout(placed, tensor):
                return placed
            del self._places[number:], self._firsts[number:]
        layout = tensor.shape, torch.empty_like(tensor, device="meta").stride()
        part = slice(first, first + tensor.nbytes)
        placed = self._block[part].view(tensor.dtype).as_strided(*layout)
        # Through NumPy, so that each has a storage of its own, as torch.save wants it.
        own = torch.from_numpy(self._on_host.numpy()[part]).view(tensor.dtype).as_strided(*layout)
        self._places.append((placed, own))
        self._firsts.append(first)
        return placed

    def on_host(self, value: Any) -> Any:
        """Return a value of `of` with its tensors on the host. Waits for the current stream."""
        pinned = self._pinned.numpy()
        into = self._on_host.numpy()
        for first in range(0, self._used, PIECE_BYTES):
            last = min(first + PIECE_BYTES, self._used)
            self._pinned[: last - first].copy_(self._block[first:last], non_blocking=True)
            if self._device.type == "cuda":
                torch.cuda.current_stream(self._device).synchronize()
            into[first:last] = pinned[: last - first]  # By one thread, where PyTorch would take all cores.
        hosts = {id(placed): own for placed, own in self._places}
        return with_tensors(value, lambda tensor: hosts.get(id(tensor), tensor).to("cpu"), deep=False)


def same_layout(placed: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Return whether a copy of `tensor` has the layout of `placed`."""
    if (placed.shape, placed.dtype) != (tensor.shape, tensor.dtype):
        return False
    return placed.stride() == tensor.stride() or placed.stride() == torch.empty_like(tensor, device="meta").stride()


def with_tensors(value: Any, change: Callable[[torch.Tensor], Any], deep: bool = True) -> Any:
    """Return the value with its tensors changed, and with `deep` a copy of all else."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return with_values(value, lambda key, inner: with_tensors(inner, change, deep))
    if type(value) in (list, tuple):
        if ATOMS.issuperset(map(type, value)):  # Random states are hundreds of numbers.
            return type(value)(value)
        return type(value)([with_tensors(inner, change, deep) for inner in value])
    return copy.deepcopy(value) if deep and type(value) not in ATOMS else value


def copied(value: Any, into: Any = None) -> Any:
    """Return a deep copy; tensors stay on their device. Reuses the memory of an earlier copy `into` if it fits."""
    if isinstance(value, torch.Tensor):
        reusable = isinstance(into, torch.Tensor) and (into.shape, into.dtype, into.device) == (
            value.shape, value.dtype, value.device,
        )  # fmt: skip
        return into.copy_(value.detach()) if reusable else value.detach().clone()
    if isinstance(value, dict):
        before = into if isinstance(into, dict) else {}
        return with_values(value, lambda key, inner: copied(inner, before.get(key)))
    if type(value) in (list, tuple):
        if ATOMS.issuperset(map(type, value)):
            return type(value)(value)
        reusable = type(into) is type(value) and len(into) == len(value)
        return type(value)(map(copied, value, into if reusable else [None] * len(value)))
    return copy.deepcopy(value)


def on_host(value: Any) -> Any:
    """Return the value with its tensors on the host; tensors already there are not copied."""
    return with_tensors(value, lambda tensor: tensor.detach().to("cpu"), deep=False)


def with_values(mapping: dict[Any, Any], change: Callable[[Any, Any], Any]) -> dict[Any, Any]:
    """Return the mapping with each value replaced by `change(key, value)`; a defaultdict keeps its factory."""
    changed = copy.copy(mapping)
    for key, inner in mapping.items():
        changed[key] = change(key, inner)
    return changed


def aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def num_bytes(value: Any, alignment: int = 1) -> int:
    """Return the size of the tensors in a value, in bytes, each rounded up to a multiple of `alignment`."""
    if isinstance(value, torch.Tensor):
        return aligned(value.numel() * value.element_size(), alignment)
    inner = value.values() if isinstance(value, Mapping) else value if type(value) in (list, tuple) else ()
    return sum(num_bytes(each, alignment) for each in inner)


def has_room(size: int, device: torch.device) -> bool:
    """Return whether copies of `size` bytes fit on the host and, if the device is a GPU, on the device."""
    if size > ROOM * available_bytes():
        return False
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return size <= ROOM * (free + _spare_bytes(device))


def _spare_bytes(device: torch.device) -> int:
    """Return the bytes that PyTorch holds and no step needs."""
    segments = torch.cuda.memory_snapshot()
    if any(tuple(segment["segment_pool_id"]) != SHARED_POOL for segment in segments):
        return 0  # A CUDA graph keeps its memory, and what the optimizer had is needed again.
    # Between steps little is allocated, but each step needs its activations again. So compare with the peak.
    return torch.cuda.memory_reserved(device) - torch.cuda.max_memory_allocated(device)
