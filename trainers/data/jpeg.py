"""Reads and decodes JPEG files of different sizes into one flat buffer on the device.

A GPU's decoder (nvJPEG) takes a batch at once; a thread pool does the same on the CPU. Both are operators of
torchvision, called directly: they release the interpreter's lock, and the public functions around them, which
torchvision 0.29 deprecates, warn at each call.
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
import torchvision  # noqa: F401  (registers the operators)
from PIL import Image

from conf.schema import ConfigError

log = logging.getLogger(__name__)

RGB = 3  # torchvision.io.ImageReadMode.RGB: grey and CMYK images are converted
DECODE = ("auto", "gpu", "cpu")
GENERATED_SIZE = (96, 128)  # height and width of generated images
PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Decoded:
    """Images of different sizes in one flat buffer, on the device.

    Image i starts at offsets[i], in C order as [3, h, w] or, where `interleaved`, [h, w, 3].
    """

    pixels: torch.Tensor  # uint8 [total]
    offsets: torch.Tensor  # int64 [n]
    sizes: torch.Tensor  # int64 [n, 2] height, width
    host_sizes: np.ndarray  # the same on the host
    interleaved: bool = False


class JpegReader:
    """Reads files with `num_threads` threads and decodes them on `device` or on the CPU.

    `decode` is gpu, cpu or auto: gpu where `device` is a GPU whose decoder works, else cpu. Raises ConfigError for gpu
    where there is none. A batch that the GPU cannot take (CMYK, another format under a JPEG's name) the CPU decodes.
    """

    def __init__(self, device: torch.device, num_threads: int, decode: str = "auto") -> None:
        if decode not in DECODE:
            raise ConfigError(f"dataset.decode={decode}: no such way to decode; allowed: {', '.join(DECODE)}")
        if num_threads < 1:
            raise ConfigError(f"dataset.num_threads={num_threads}: give the number of threads, 1 or more")
        self.device = device
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="jpeg")
        self._num_threads = num_threads
        problem = _gpu_problem(device) if decode != "cpu" else "not asked for"
        if problem and decode == "gpu":
            raise ConfigError(f"dataset.decode=gpu: {problem}; use dataset.decode=cpu, or auto to take what there is")
        self.decodes_on_gpu = not problem

    def read(self, paths: Sequence[PathLike]) -> Decoded:
        """The images of the files, in their order. EXIF orientation is not applied.

        Raises ConfigError that names a file which is missing, truncated or no image.
        """
        if self.decodes_on_gpu:
            encoded = self._each(read_file, paths)
            if all(map(_is_whole_jpeg, encoded)):
                try:
                    return self._decode_on_gpu(encoded)
                except torch.OutOfMemoryError:
                    raise
                except RuntimeError as error:  # does not say which file: the CPU decodes all, or names the broken one
                    log.info("a batch is decoded on the CPU: %s", error)
        return self._decode_on_cpu(paths)

    def _decode_on_gpu(self, encoded: list[torch.Tensor]) -> Decoded:
        # The decoder works on a stream of its own, in memory that belongs to the current one: whatever that still does
        # with the memory has to end first.
        torch.cuda.current_stream(self.device).synchronize()
        images = torch.ops.image.decode_jpegs_cuda(encoded, RGB, self.device)
        host_sizes = np.array([image.shape[1:] for image in images], dtype=np.int64)
        pixels = torch.cat([image.view(-1) for image in images])
        return self._decoded(pixels, host_sizes, interleaved=False)

    def _decode_on_cpu(self, paths: Sequence[PathLike]) -> Decoded:
        images = self._each(decode_file, paths)
        host_sizes = np.array([image.shape[:2] for image in images], dtype=np.int64)
        offsets = _offsets(host_sizes)
        # PyTorch's allocator of pinned memory does not hand out a block again before the copy from it has ended.
        flat = torch.empty(int(host_sizes.prod(axis=1).sum()) * 3, dtype=torch.uint8, pin_memory=self._on_gpu())
        flat_view = flat.numpy()

        def place(index: int) -> None:  # NumPy copies in one thread, where PyTorch would wake a pool in each
            image = images[index].ravel()
            flat_view[offsets[index] : offsets[index] + image.size] = image

        self._each(place, range(len(images)))
        return self._decoded(flat.to(self.device, non_blocking=True), host_sizes, interleaved=True)

    def _decoded(self, pixels: torch.Tensor, host_sizes: np.ndarray, interleaved: bool) -> Decoded:
        table = torch.from_numpy(np.column_stack([_offsets(host_sizes), host_sizes]))
        if self._on_gpu():
            table = table.pin_memory().to(self.device, non_blocking=True)
        return Decoded(pixels, table[:, 0].contiguous(), table[:, 1:].contiguous(), host_sizes, interleaved)

    def _on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def _each(self, function: Callable, items: Iterable) -> list:
        """The results of `function` for each of the items, in order; a future a thread, not one an item."""
        items = list(items)
        results: list = [None] * len(items)
        todo = iter(range(len(items)))  # its next() is atomic

        def work() -> None:
            for index in todo:
                results[index] = function(items[index])

        for future in [self._threads.submit(work) for _ in range(min(self._num_threads, len(items)))]:
            future.result()
        return results


def generated(batch_size: int, device: torch.device, interleaved: bool) -> Decoded:
    """Noise, as if it had been decoded: what comes behind the decoder is compiled on it before the clock starts."""
    rng = np.random.RandomState(0)  # its own: warming up must not move the run's random numbers
    sizes = np.tile(np.array(GENERATED_SIZE), (batch_size, 1))
    pixels = torch.from_numpy(rng.randint(0, 256, int(sizes.prod(axis=1).sum()) * 3, dtype=np.uint8)).to(device)
    offsets = torch.from_numpy(_offsets(sizes)).to(device)
    return Decoded(pixels, offsets, torch.from_numpy(sizes).to(device), sizes, interleaved)


def threads_per_process(num_processes: int) -> int:
    """This machine's cores, as far as they are ours, shared by the processes."""
    return max(1, len(os.sched_getaffinity(0)) // num_processes)


def read_file(path: PathLike) -> torch.Tensor:
    """The file's bytes, uint8 [length]. Raises ConfigError where it cannot be read or holds nothing."""
    try:
        content: torch.Tensor = torch.ops.image.read_file(os.fspath(path))
    except RuntimeError as error:
        raise _refusal(path, _reason(path)) from error
    return content


def decode_file(path: PathLike) -> np.ndarray:
    """The image in a file, uint8 [height, width, 3]. Raises ConfigError where there is none."""
    content = read_file(path)
    try:
        image: torch.Tensor = torch.ops.image.decode_jpeg(content, RGB, False)
        return image.permute(1, 2, 0).numpy()
    except RuntimeError:
        pass  # another format under a JPEG's name, as ImageNet holds one, or a broken file: Pillow tells them apart
    try:
        with Image.open(io.BytesIO(content.numpy().tobytes())) as picture:
            return np.asarray(picture.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise _refusal(path, f"cannot be decoded as an image ({error})") from error


def _reason(path: PathLike) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return "is empty" if not file.read(1) else "cannot be read"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _refusal(path: PathLike, problem: str) -> ConfigError:
    return ConfigError(
        f"dataset.path: the file {os.fspath(path)} {problem}; copy it from the dataset's original again, or take it out"
        " of the dataset"
    )


def _is_whole_jpeg(content: torch.Tensor) -> bool:
    """Whether it begins as a JPEG and ends as one: a GPU's decoder fills up what is missing without a word."""
    view = content.numpy()
    return view[:2].tobytes() == b"\xff\xd8" and b"\xff\xd9" in view[-64:].tobytes()


def _offsets(host_sizes: np.ndarray) -> np.ndarray:
    ends = np.cumsum(host_sizes.prod(axis=1) * 3)
    return np.concatenate([[0], ends[:-1]])


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
