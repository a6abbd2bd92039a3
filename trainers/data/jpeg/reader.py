"""Reads and decodes JPEG files of different sizes into one flat buffer on the device.

It decodes by a pool of CPU threads or by the GPU's decoder. The latter's kernels compete with those of training: for a
busy GPU the CPU is better, if it has enough cores.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import torch

from conf.dataset_options import default_threads
from conf.schema import ConfigError
from trainers.data.jpeg.file import Images, PathLike, decode_files, is_whole_jpeg, read_file
from trainers.data.jpeg.nvjpeg import Decoder, Failed, Size, Unavailable
from trainers.data.loading.prefetch import prefetch
from trainers.data.reading.image_limit import MAX_IMAGE_PIXELS, above_limit

if TYPE_CHECKING:
    from trainers.data.loading.types import Shard

log = logging.getLogger(__name__)

DECODE = ("auto", "gpu", "cpu")
GENERATED_SIZE = (96, 128)  # height and width of generated images
FILES_A_THREAD = 32  # files that a thread reads for the GPU's decoder; for fewer, waking threads costs too much
ENOUGH_THREADS = 8  # These decode some 5,000 images/s, about as an H200's decoder does beside training.


@dataclass(frozen=True)
class Decoded:
    """Images of different sizes in one flat buffer, on the device.

    Image i starts at offsets[i], in C order as [3, h, w] or, if `interleaved`, as [h, w, 3].
    """

    pixels: torch.Tensor  # uint8 [total]
    offsets: torch.Tensor  # int64 [n]
    sizes: torch.Tensor  # int64 [n, 2] height, width
    interleaved: torch.Tensor  # bool [n]
    host_sizes: np.ndarray  # sizes, on the host


@dataclass(frozen=True)
class _Prepared:
    """A batch after the CPU's part, by places in the batch."""

    encoded: dict[int, torch.Tensor]  # files for the GPU to decode
    sizes: dict[int, Size]  # height and width of their images
    on_cpu: Sequence[int]  # places of the other images
    images: Images  # the other images, decoded


class JpegReader:
    """Reads files with `num_threads` threads and decodes them on `device` or on the CPU.

    `decode` is gpu, cpu or auto. auto means gpu if `device` is a GPU with a working decoder and there are fewer threads
    than ENOUGH_THREADS, else cpu. Raises ConfigError for gpu without a decoder. The CPU decodes images that the GPU
    cannot decode: grey, CMYK, progressive, or another format under a JPEG's name.

    Several threads may read at once: an evaluation may begin before the training's files are all read.
    """

    def __init__(
        self, device: torch.device, num_threads: int, decode: str = "auto", max_image_pixels: int = MAX_IMAGE_PIXELS
    ) -> None:
        if decode not in DECODE:
            raise ConfigError(f"dataset.decode={decode}: no such value. Allowed: {', '.join(DECODE)}")
        if num_threads < 1:
            raise ConfigError(f"dataset.num_threads={num_threads}: must be 1 or more")
        self.device = device
        self._num_threads, self._max_image_pixels = num_threads, max_image_pixels
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="read")
        decode_files([], 1)  # compiles the decoder before the clock starts
        self._gpu: Decoder | None = None
        self._asking, self._decoding = Lock(), Lock()  # The GPU's decoder allows one thread at a time for each.
        if decode == "gpu" or (decode == "auto" and num_threads < ENOUGH_THREADS):
            try:
                self._gpu = Decoder(device)
            except Unavailable as error:
                if decode == "gpu":
                    raise ConfigError(
                        f"dataset.decode=gpu: {error}. Next: give dataset.decode=cpu, or auto, which falls back to the"
                        " CPU"
                    ) from error

    def read(self, paths: Sequence[PathLike]) -> Decoded:
        """Return the images of the files, in their order. EXIF orientation is not applied.

        Raises ConfigError, naming the file, if it is missing, truncated, not an image or has more than
        `max_image_pixels`.
        """
        return self._finish(paths, self._prepare(paths))

    def read_ahead(self, batches: Iterable[Sequence[PathLike]]) -> Iterator[Decoded]:
        """Yield `read` of each batch; meanwhile the CPU does its part of the next one."""
        prepared = ((paths, self._prepare(paths)) for paths in batches)
        for paths, batch in prefetch(prepared, torch.device("cpu"), depth=1):
            yield self._finish(paths, batch)

    def _prepare(self, paths: Sequence[PathLike]) -> _Prepared:
        if not self._gpu:
            return self._all_on_cpu(paths)
        shares = [paths[first : first + FILES_A_THREAD] for first in range(0, len(paths), FILES_A_THREAD)]
        content = list(chain.from_iterable(self._threads.map(lambda share: [*map(read_file, share)], shares)))
        with self._asking:
            sizes = {place: size for place, file in enumerate(content) if (size := self._size(file)) is not None}
        rest = [place for place in range(len(paths)) if place not in sizes]
        images = self._decode([paths[place] for place in rest])
        return _Prepared({place: content[place] for place in sizes}, sizes, rest, images)

    def _all_on_cpu(self, paths: Sequence[PathLike]) -> _Prepared:
        return _Prepared({}, {}, range(len(paths)), self._decode(paths))

    def _decode(self, paths: Sequence[PathLike]) -> Images:
        on_gpu = self.device.type == "cuda"
        # Memory is pinned for the current device.
        with torch.cuda.device(self.device) if on_gpu else nullcontext():
            return decode_files(paths, min(self._num_threads, len(paths)), on_gpu, self._max_image_pixels)

    def _finish(self, paths: Sequence[PathLike], batch: _Prepared) -> Decoded:
        pixels = None
        if self._gpu and batch.encoded:
            try:
                with self._decoding:
                    pixels = self._gpu.decode(list(batch.encoded.values()), list(batch.sizes.values()))
            except Failed as error:  # It does not name the file: the CPU decodes all, or names the broken one.
                log.info("%d images are decoded on the CPU: %s", len(batch.encoded), error)
                batch = self._all_on_cpu(paths)
        return self._packed(batch, pixels)

    def _size(self, content: torch.Tensor) -> Size | None:
        assert self._gpu
        size = self._gpu.size(content) if is_whole_jpeg(content) else None
        # None sends images that are too large to the CPU's part, which refuses them by name.
        return None if size and above_limit(size, self._max_image_pixels) else size

    def _packed(self, batch: _Prepared, pixels: torch.Tensor | None) -> Decoded:
        """Pack all images into one buffer: first [3, h, w] from the GPU's decoder, then [h, w, 3] from the CPU's."""
        sizes = np.concatenate([np.array([*batch.sizes.values()], np.int64).reshape(-1, 2), batch.images.sizes])
        lengths = 3 * sizes.prod(axis=1)
        offsets = np.cumsum(lengths) - lengths
        if len(batch.on_cpu):
            from_cpu = batch.images.pixels.to(self.device, non_blocking=True)
            pixels = from_cpu if pixels is None else torch.cat((pixels, from_cpu))
        assert pixels is not None
        order = np.argsort([*batch.sizes, *batch.on_cpu])
        by_cpu = np.arange(len(sizes)) >= len(batch.sizes)
        table = torch.from_numpy(np.column_stack([offsets, sizes, by_cpu])[order])
        if self.device.type == "cuda":
            table = table.pin_memory().to(self.device, non_blocking=True)
        return Decoded(pixels, table[:, 0].contiguous(), table[:, 1:3].contiguous(), table[:, 3] != 0, sizes[order])


def generated(batch_size: int, device: torch.device) -> Decoded:
    """Return noise in the form of decoded images, to warm up what follows the decoder."""
    rng = np.random.RandomState(0)  # a separate generator, so that warming up does not change the run's
    sizes = np.tile(np.array(GENERATED_SIZE), (batch_size, 1))
    length = 3 * GENERATED_SIZE[0] * GENERATED_SIZE[1]
    pixels = torch.from_numpy(rng.randint(0, 256, batch_size * length, dtype=np.uint8)).to(device)
    offsets = length * torch.arange(batch_size, device=device)
    interleaved = torch.ones(batch_size, dtype=torch.bool, device=device)
    return Decoded(pixels, offsets, torch.from_numpy(sizes).to(device), interleaved, sizes)


def threads_per_process(num_processes: int) -> int:
    """Return the threads for each process, by its share of the usable cores."""
    return default_threads(len(os.sched_getaffinity(0)) // num_processes)


class SharedReader:
    """The reader that a dataset's training and evaluation share. It is made at its first use."""

    def __init__(
        self, decode: str = "auto", num_threads: int | None = None, max_image_pixels: int = MAX_IMAGE_PIXELS
    ) -> None:
        self._decode, self._num_threads, self._max_image_pixels = decode, num_threads, max_image_pixels
        self._reader: JpegReader | None = None

    def of(self, shard: Shard) -> JpegReader:
        """Return the reader; making it initialises the device's decoder."""
        if self._reader is None:
            num_threads = threads_per_process(shard.num_local) if self._num_threads is None else self._num_threads
            self._reader = JpegReader(shard.device, num_threads, self._decode, self._max_image_pixels)
        return self._reader
