"""Reads and decodes JPEG files of different sizes into one flat buffer on the device.

By a pool of the CPU's threads or by the GPU's decoder. The latter needs room between training's kernels for its own:
a GPU that training keeps busy is better fed by the CPU, if that has enough cores.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import torch

from conf.schema import ConfigError
from trainers.data.jpeg_file import PathLike, decode_file, is_whole_jpeg, read_file
from trainers.data.nvjpeg import Decoder, Failed, Size, Unavailable
from trainers.data.prefetch import prefetch

log = logging.getLogger(__name__)

DECODE = ("auto", "gpu", "cpu")
GENERATED_SIZE = (96, 128)  # height and width of generated images
MOVE_AT_ONCE = 8  # files a thread
ENOUGH_THREADS = 8  # decode some 5,000 images/s, about what an H200's decoder does beside training
SPARE_CORES = 2  # for the threads that launch kernels and that put batches together


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
    """Reads files with `num_threads` threads and decodes them on `device` or on the CPU.

    `decode` is gpu, cpu or auto: gpu where `device` is a GPU whose decoder works and the threads are fewer than
    ENOUGH_THREADS, else cpu. Raises ConfigError for gpu where there is none. What the GPU cannot take (grey, CMYK,
    progressive, another format under a JPEG's name) the CPU decodes.
    """

    def __init__(self, device: torch.device, num_threads: int, decode: str = "auto") -> None:
        if decode not in DECODE:
            raise ConfigError(f"dataset.decode={decode}: no such way to decode; allowed: {', '.join(DECODE)}")
        if num_threads < 1:
            raise ConfigError(f"dataset.num_threads={num_threads}: give the number of threads, 1 or more")
        self.device = device
        self._num_threads = num_threads
        self._movers = ThreadPoolExecutor(num_threads, thread_name_prefix="move")  # of bytes: read, copy
        self._decoders = ThreadPoolExecutor(num_threads, thread_name_prefix="decode")
        self._gpu: Decoder | None = None
        if decode == "gpu" or (decode == "auto" and num_threads < ENOUGH_THREADS):
            try:
                self._gpu = Decoder(device)
            except Unavailable as error:
                if decode == "gpu":
                    raise ConfigError(
                        f"dataset.decode=gpu: {error}; use dataset.decode=cpu, or auto to take what there is"
                    ) from error

    def read(self, paths: Sequence[PathLike]) -> Decoded:
        """The images of the files, in their order. EXIF orientation is not applied.

        Raises ConfigError that names a file which is missing, truncated or no image.
        """
        return self._start(paths, self._fetch(paths))()

    def read_ahead(self, batches: Iterable[Sequence[PathLike]]) -> Iterator[Decoded]:
        """`read` of each of the batches; before one is waited for, the threads have the next."""
        fetched = prefetch(((paths, self._fetch(paths)) for paths in batches), torch.device("cpu"), depth=1)
        started = (self._start(paths, encoded) for paths, encoded in fetched)
        for finish, _ in pairwise(chain(started, (None,))):
            assert finish
            yield finish()

    def _fetch(self, paths: Sequence[PathLike]) -> list[torch.Tensor]:
        """The files' bytes, where the GPU decodes; the CPU reads them as it goes."""
        return self._each(self._movers, read_file, paths, MOVE_AT_ONCE)() if self._gpu else []

    def _start(self, paths: Sequence[PathLike], encoded: list[torch.Tensor]) -> Callable[[], Decoded]:
        """Has the threads decode what is theirs; the result decodes what is the GPU's, waits and puts all together."""
        sizes = {index: size for index, one in enumerate(encoded) if (size := self._size(one)) is not None}
        on_cpu = self._decoding(paths, [index for index in range(len(paths)) if index not in sizes])

        def finish() -> Decoded:
            if not (self._gpu and sizes):
                return self._packed({}, None, on_cpu())
            try:
                pixels = self._gpu.decode([encoded[index] for index in sizes], list(sizes.values()))
            except Failed as error:  # does not say which file: the CPU decodes all, or names the broken one
                log.info("%d images are decoded on the CPU: %s", len(sizes), error)
                return self._packed({}, None, on_cpu() | self._decoding(paths, list(sizes))())
            return self._packed(sizes, pixels, on_cpu())

        return finish

    def _decoding(self, paths: Sequence[PathLike], indices: list[int]) -> Callable[[], dict[int, np.ndarray]]:
        """Decodes those of the files on the CPU from now on; the result waits for them."""
        images = self._each(self._decoders, decode_file, [paths[index] for index in indices])
        return lambda: dict(zip(indices, images(), strict=True))

    def _size(self, content: torch.Tensor) -> Size | None:
        assert self._gpu
        return self._gpu.size(content) if is_whole_jpeg(content) else None

    def _packed(
        self, on_gpu: Mapping[int, Size], pixels: torch.Tensor | None, on_cpu: Mapping[int, np.ndarray]
    ) -> Decoded:
        """All images in one buffer, first those [3, h, w] of the GPU's decoder, then those [h, w, 3] of the CPU's."""
        placed = np.array([*on_gpu, *on_cpu])
        sizes = np.array([*on_gpu.values(), *(image.shape[:2] for image in on_cpu.values())], dtype=np.int64)
        lengths = 3 * sizes.prod(axis=1)
        offsets = np.cumsum(lengths) - lengths
        if on_cpu:
            own = self._copied(list(on_cpu.values()))
            pixels = own if pixels is None else torch.cat((pixels, own))
        assert pixels is not None
        order = np.argsort(placed)
        table = torch.from_numpy(np.column_stack([offsets, sizes, np.arange(len(placed)) >= len(on_gpu)])[order])
        if self.device.type == "cuda":
            table = table.pin_memory().to(self.device, non_blocking=True)
        return Decoded(pixels, table[:, 0].contiguous(), table[:, 1:3].contiguous(), table[:, 3] != 0, sizes[order])

    def _copied(self, images: list[np.ndarray]) -> torch.Tensor:
        """The images, one after the other, on the device."""
        ends = np.cumsum([image.size for image in images])
        # PyTorch's allocator of pinned memory does not hand out a block again before the copy from it has ended.
        flat = torch.empty(int(ends[-1]), dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        view = flat.numpy()

        def place(number: int) -> None:  # NumPy copies in one thread, where PyTorch would wake a pool in each
            view[ends[number] - images[number].size : ends[number]] = images[number].ravel()

        self._each(self._movers, place, range(len(images)), MOVE_AT_ONCE)()  # the decoders have the next batch
        return flat.to(self.device, non_blocking=True)

    def _each(
        self, pool: ThreadPoolExecutor, function: Callable, items: Iterable, at_once: int = 1
    ) -> Callable[[], list]:
        """Starts `function` for each of the items; the result waits for what it returned, in order.

        By one thread for every `at_once` items at most: threads that wake up keep the one that launches the training's
        kernels waiting for the interpreter.
        """
        items = list(items)
        results: list = [None] * len(items)
        todo = iter(range(len(items)))  # its next() is atomic

        def work() -> None:
            for index in todo:
                results[index] = function(items[index])

        working = [pool.submit(work) for _ in range(min(self._num_threads, -(-len(items) // at_once)))]

        def finish() -> list:
            for future in working:
                future.result()
            return results

        return finish


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
    """This machine's cores, as far as they are ours, shared by the processes; some of them are left for the rest."""
    cores = len(os.sched_getaffinity(0)) // num_processes
    return max(1, cores // 2, cores - SPARE_CORES)
