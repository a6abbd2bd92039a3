"""Reads and decodes JPEG files of different sizes into one flat buffer on the device.

A GPU's decoder (nvJPEG) takes a batch at once. It converts image by image in small kernels, though, each of which waits
for room between a training's large ones: beside a training it has a tenth of its speed, so the CPU's threads share the
work. Both are operators of torchvision.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch

from conf.schema import ConfigError
from trainers.data.jpeg_file import RGB, PathLike, decode_file, is_whole_jpeg, read_file
from trainers.data.prefetch import prefetch

log = logging.getLogger(__name__)

DECODE = ("auto", "gpu", "cpu")
GENERATED_SIZE = (96, 128)  # height and width of generated images


@dataclass(frozen=True)
class Decoded:
    """Images of different sizes in one flat buffer, on the device.

    Image i starts at offsets[i], in C order as [3, h, w] or, where `interleaved`, [h, w, 3].
    """

    pixels: torch.Tensor  # uint8 [total]
    offsets: torch.Tensor  # int64 [n]
    sizes: torch.Tensor  # int64 [n, 2] height, width
    interleaved: torch.Tensor  # bool [n]
    host_sizes: np.ndarray  # sizes, on the host


class JpegReader:
    """Reads files with `num_threads` threads and decodes them on `device`, on the CPU, or on both.

    `decode` is gpu, cpu or auto: both where `device` is a GPU whose decoder works, else cpu. Raises ConfigError for gpu
    where there is none. What the GPU cannot take (CMYK, another format under a JPEG's name) the CPU decodes.
    """

    def __init__(self, device: torch.device, num_threads: int, decode: str = "auto") -> None:
        if decode not in DECODE:
            raise ConfigError(f"dataset.decode={decode}: no such way to decode; allowed: {', '.join(DECODE)}")
        if num_threads < 1:
            raise ConfigError(f"dataset.num_threads={num_threads}: give the number of threads, 1 or more")
        self.device = device
        self._num_threads = num_threads
        self._readers = ThreadPoolExecutor(num_threads, thread_name_prefix="read")
        self._decoders = ThreadPoolExecutor(num_threads, thread_name_prefix="decode")
        problem = _gpu_problem(device) if decode != "cpu" else "not asked for"
        if problem and decode == "gpu":
            raise ConfigError(f"dataset.decode=gpu: {problem}; use dataset.decode=cpu, or auto to take what there is")
        self.decodes_on_gpu = not problem
        self._shares = not problem and decode == "auto"

    def read(self, paths: Sequence[PathLike], repeatable: bool = False) -> Decoded:
        """The images of the files, in their order. EXIF orientation is not applied.

        The two decoders blow up halved colour channels in different ways, and which of them takes an image is a matter
        of time: unless the result is to be `repeatable`. Raises ConfigError that names a file which is missing,
        truncated or no image.
        """
        return self._decode(paths, self._fetch(paths), repeatable)

    def read_ahead(self, batches: Iterable[Sequence[PathLike]], repeatable: bool = False) -> Iterator[Decoded]:
        """`read` of each of the batches; while one is decoded, the files of the next are read."""
        fetched = ((paths, self._fetch(paths)) for paths in batches)
        for paths, encoded in prefetch(fetched, torch.device("cpu"), depth=1):
            yield self._decode(paths, encoded, repeatable)

    def _fetch(self, paths: Sequence[PathLike]) -> list[torch.Tensor]:
        """The files' bytes, where the GPU decodes; the CPU alone reads them as it goes."""
        return self._each(self._readers, read_file, paths) if self.decodes_on_gpu else []

    def _decode(self, paths: Sequence[PathLike], encoded: list[torch.Tensor], repeatable: bool) -> Decoded:
        """The GPU takes images from the front, some at a time, the CPU's threads from the back, until they meet."""
        if not self.decodes_on_gpu:
            return self._packed({}, self._decode_all(range(len(paths)), paths))
        whole = [is_whole_jpeg(content) for content in encoded]
        on_cpu = self._decode_all([index for index, one in enumerate(whole) if not one], paths)
        on_gpu: dict[int, torch.Tensor] = {}
        todo = deque(index for index, one in enumerate(whole) if one)  # taking from it is atomic

        def decode_from_the_back() -> None:
            with suppress(IndexError):  # none is left
                while True:
                    index = todo.pop()
                    on_cpu[index] = decode_file(paths[index], encoded[index])

        shared = self._shares and not repeatable
        most = max(8, len(paths) // 16) if shared else len(paths)
        chunk = _take(todo, most)
        helpers = self._start(self._decoders, decode_from_the_back, len(todo)) if shared else []
        while chunk:
            try:
                images = self._decode_on_gpu([encoded[index] for index in chunk])
                on_gpu.update(zip(chunk, images, strict=True))
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:  # does not say which file: the CPU decodes all, or names the broken one
                log.info("%d images are decoded on the CPU: %s", len(chunk), error)
                on_cpu |= self._decode_all(chunk, paths)
            chunk = _take(todo, most)
        for helper in helpers:
            helper.result()
        return self._packed(on_gpu, on_cpu)

    def _decode_on_gpu(self, encoded: list[torch.Tensor]) -> list[torch.Tensor]:
        # The decoder works on a stream of its own, in memory that belongs to the current one: whatever that still does
        # with the memory has to end first.
        torch.cuda.current_stream(self.device).synchronize()
        images: list[torch.Tensor] = torch.ops.image.decode_jpegs_cuda(encoded, RGB, self.device)
        return images

    def _decode_all(self, chosen: Sequence[int], paths: Sequence[PathLike]) -> dict[int, np.ndarray]:
        return dict(
            zip(chosen, self._each(self._decoders, decode_file, [paths[index] for index in chosen]), strict=True)
        )

    def _packed(self, on_gpu: Mapping[int, torch.Tensor], on_cpu: Mapping[int, np.ndarray]) -> Decoded:
        """All images in one buffer, first those [3, h, w] of the GPU's decoder, then those [h, w, 3] of the CPU's."""
        placed = np.array([*on_gpu, *on_cpu])
        sizes = np.array(
            [x.shape[1:] for x in on_gpu.values()] + [x.shape[:2] for x in on_cpu.values()], dtype=np.int64
        )
        lengths = 3 * sizes.prod(axis=1)
        offsets = np.cumsum(lengths) - lengths
        first = int(lengths[: len(on_gpu)].sum())
        # PyTorch's allocator of pinned memory does not hand out a block again before the copy from it has ended.
        flat = torch.empty(int(lengths.sum()) - first, dtype=torch.uint8, pin_memory=self._on_gpu())
        flat_view = flat.numpy()

        def place(number: int) -> None:  # NumPy copies in one thread, where PyTorch would wake a pool in each
            start = offsets[len(on_gpu) + number] - first
            image = on_cpu[placed[len(on_gpu) + number]].ravel()
            flat_view[start : start + image.size] = image

        self._each(self._decoders, place, range(len(on_cpu)))
        parts = [image.view(-1) for image in on_gpu.values()] + [flat.to(self.device, non_blocking=True)]
        order = np.argsort(placed)
        table = torch.from_numpy(np.column_stack([offsets, sizes, np.arange(len(placed)) >= len(on_gpu)])[order])
        if self._on_gpu():
            table = table.pin_memory().to(self.device, non_blocking=True)
        return Decoded(
            torch.cat(parts) if on_gpu else parts[0],
            table[:, 0].contiguous(),
            table[:, 1:3].contiguous(),
            table[:, 3] != 0,
            sizes[order],
        )

    def _on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def _each(self, pool: ThreadPoolExecutor, function: Callable, items: Iterable) -> list:
        """The results of `function` for each of the items, in order; a future a thread, not one an item."""
        items = list(items)
        results: list = [None] * len(items)
        todo = iter(range(len(items)))  # its next() is atomic

        def work() -> None:
            for index in todo:
                results[index] = function(items[index])

        for future in self._start(pool, work, len(items)):
            future.result()
        return results

    def _start(self, pool: ThreadPoolExecutor, work: Callable[[], None], num_items: int) -> list[Future[None]]:
        return [pool.submit(work) for _ in range(min(self._num_threads, num_items))]


def generated(batch_size: int, device: torch.device) -> Decoded:
    """Noise, as if it had been decoded: to warm up what comes behind the decoder."""
    rng = np.random.RandomState(0)  # its own: warming up must not move the run's random numbers
    sizes = np.tile(np.array(GENERATED_SIZE), (batch_size, 1))
    length = 3 * GENERATED_SIZE[0] * GENERATED_SIZE[1]
    pixels = torch.from_numpy(rng.randint(0, 256, batch_size * length, dtype=np.uint8)).to(device)
    offsets = length * torch.arange(batch_size, device=device)
    interleaved = torch.ones(batch_size, dtype=torch.bool, device=device)
    return Decoded(pixels, offsets, torch.from_numpy(sizes).to(device), interleaved, sizes)


def threads_per_process(num_processes: int) -> int:
    """This machine's cores, as far as they are ours, shared by the processes."""
    return max(1, len(os.sched_getaffinity(0)) // num_processes)


def _take(todo: deque[int], most: int) -> list[int]:
    taken: list[int] = []
    with suppress(IndexError):  # other threads may take the last
        while len(taken) < most:
            taken.append(todo.popleft())
    return taken


def _gpu_problem(device: torch.device) -> str:
    """Why JPEGs cannot be decoded on the device; empty where they can. Sets the decoder up, which takes a while."""
    if device.type != "cuda":
        return f"the device is {device.type}"
    probe = torch.ops.image.encode_jpeg(torch.full((3, 16, 16), 128, dtype=torch.uint8), 90)
    try:
        torch.ops.image.decode_jpegs_cuda([probe], RGB, device)
    except (RuntimeError, AttributeError) as error:
        return f"torchvision's decoder does not work on it ({str(error).splitlines()[0]})"
    return ""
