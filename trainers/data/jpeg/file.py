"""Reads and decodes JPEG files on the CPU; errors name the broken file.

torchvision's operators are called directly, because they release the GIL. The public functions around them, which
torchvision 0.29 deprecates, warn at each call.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import torch
import torchvision  # noqa: F401  (registers the operators)
from PIL import Image, UnidentifiedImageError

from conf.schema import ConfigError
from trainers.data.reading.image_limit import MAX_IMAGE_PIXELS, above_limit
from trainers.data.reading.regular_file import opened

# Formats that occur under a JPEG's name. Pillow would open fifty formats, and one of them by another program (EPS).
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP")
EIGHT_BITS = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")  # Pillow's modes
Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit could not be raised by an option.

log = logging.getLogger(__name__)

RGB = 3  # torchvision.io.ImageReadMode.RGB: grey and CMYK images are converted
PathLike = str | os.PathLike[str]


class Images(NamedTuple):
    """Images of different sizes, one after the other in one flat buffer, each in C order as [height, width, 3]."""

    pixels: torch.Tensor  # uint8 [total]
    sizes: np.ndarray  # int64 [n, 2] height, width


def read_file(path: PathLike) -> torch.Tensor:
    """Return the file's bytes, uint8 [length]. Raises ConfigError for an unreadable or empty file.

    Python reads it: torchvision's operator only maps the file, and whoever first uses the bytes waits for the disk.
    """
    try:
        with opened(os.fspath(path)) as file:
            content = bytearray(file.read())
    except OSError as error:
        raise _refusal(path, f"cannot be read ({error.strerror})") from error
    if not content:
        raise _refusal(path, "is empty")
    return torch.frombuffer(content, dtype=torch.uint8)


def decode_file(path: PathLike, max_image_pixels: int = MAX_IMAGE_PIXELS) -> np.ndarray:
    """Return the image in a file, uint8 [height, width, 3].

    Raises ConfigError for a file without an image, or with more than `max_image_pixels` by its header.
    """
    content = read_file(path)
    if 0 < _num_pixels(content) <= max_image_pixels:
        with contextlib.suppress(RuntimeError):
            image: torch.Tensor = torch.ops.image.decode_jpeg(content, RGB, False)
            return image.permute(1, 2, 0).numpy()
    # The file has another format under a JPEG's name (ImageNet has one), or is too large or broken: Pillow finds out.
    try:
        with Image.open(io.BytesIO(content.numpy().tobytes()), formats=FORMATS) as picture:  # reads only the header
            if large := above_limit(picture.size[::-1], max_image_pixels):
                raise ConfigError(f"dataset.path: the file {os.fspath(path)} {large}, or take it out of the dataset")
            return rgb(picture)
    except ConfigError:
        raise
    except (OSError, SyntaxError, ValueError) as error:
        # For an unknown format Pillow's words have an address in memory in place of the file.
        problem = "no complete header" if isinstance(error, UnidentifiedImageError) else error
        raise _refusal(path, f"cannot be decoded as an image ({problem}). Allowed: {', '.join(FORMATS)}") from error


def rgb(picture: Image.Image) -> np.ndarray:
    """Return the pixels in 8 bits, uint8 [height, width, 3], without transparency.

    Raises ValueError for a mode whose values have no known range.
    """
    if picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format == "PNG"):
        # Pillow's conversion would clip at 255. Take the upper byte, as Pillow does for 16-bit colour.
        grey = (np.asarray(picture).astype(np.int64) >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, None], RGB, axis=2)
    if picture.mode not in EIGHT_BITS:
        raise ValueError(
            f"its mode is {picture.mode}, whose values have no known range. Next: convert it to 8 or 16 bits"
        )
    return np.array(picture.convert("RGB"))


def decode_files(
    paths: Sequence[PathLike], num_threads: int, pin_memory: bool = False, max_image_pixels: int = MAX_IMAGE_PIXELS
) -> Images:
    """Return the image in each file, as `decode_file` does, decoded by `num_threads` threads outside of Python.

    Python threads would take the GIL several times a file, and the thread that launches the training's kernels would
    wait for it as often: see docs/decisions.md.
    """
    try:
        images = _script(_decode)([os.fspath(path) for path in paths], num_threads, max_image_pixels)
    except (RuntimeError, torch.jit.Error) as error:  # A file is not a JPEG, or too large; the error does not name it.
        log.info("%d images are decoded one by one: %s", len(paths), str(error).strip().rpartition("\n")[2])
        with ThreadPoolExecutor(num_threads) as threads:
            images = [torch.from_numpy(image) for image in threads.map(decode_file, paths, repeat(max_image_pixels))]
    sizes = np.array([image.shape[:2] for image in images], np.int64).reshape(-1, 2)
    ends = np.cumsum(3 * sizes.prod(axis=1)).tolist()
    # PyTorch's allocator of pinned memory reuses a block only after the copy from it has ended.
    pixels = torch.empty(ends[-1] if ends else 0, dtype=torch.uint8, pin_memory=pin_memory)
    _script(_place)(images, ends, pixels, num_threads)
    return Images(pixels, sizes)


@functools.cache
def _script(function: Callable[..., Any]) -> Callable[..., Any]:
    with warnings.catch_warnings():
        # TorchScript is deprecated, but only it runs without the GIL.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        script: Callable[..., Any] = torch.jit.script(function)
        return script


def _decode(paths: list[str], num_threads: int, max_pixels: int) -> list[torch.Tensor]:
    waiting: list[torch.jit.Future[list[torch.Tensor]]] = []
    for first in range(num_threads):
        waiting.append(torch.jit.fork(_decode_share, paths, first, num_threads, max_pixels))
    shares: list[list[torch.Tensor]] = []
    for share in waiting:
        shares.append(torch.jit.wait(share))
    return [shares[place % num_threads][place // num_threads] for place in range(len(paths))]


def _decode_share(paths: list[str], first: int, step: int, max_pixels: int) -> list[torch.Tensor]:
    images: list[torch.Tensor] = []
    for place in range(first, len(paths), step):
        content = torch.ops.image.read_file(paths[place])
        if not 0 < _num_pixels(content) <= max_pixels:  # before memory is allocated for them
            raise RuntimeError("an image that is too large, or of another format")
        images.append(torch.ops.image.decode_jpeg(content, 3, False).permute(1, 2, 0))
    return images


def _num_pixels(content: torch.Tensor) -> int:
    """Return the number of pixels by a JPEG's header; 0 if it has no frame.

    Segments precede that of the frame: 0xFF, a marker, two bytes of length and, for a frame, one byte of precision, two
    of height and two of width (ITU-T T.81, B.1.1.4 and B.2.2).
    """
    place = 2
    while place + 9 <= len(content):
        head: list[int] = content[place : place + 9].long().tolist()
        if head[0] != 0xFF:
            return 0
        marker = head[1]
        if marker == 0xFF:  # one of any number of fill bytes
            place += 1
        elif marker >= 0xC0 and marker <= 0xCF and marker != 0xC4 and marker != 0xC8 and marker != 0xCC:
            return (head[5] * 256 + head[6]) * (head[7] * 256 + head[8])
        else:
            place += 2 + head[2] * 256 + head[3]
    return 0


def _place(images: list[torch.Tensor], ends: list[int], pixels: torch.Tensor, num_threads: int) -> None:
    """Copy the images into `pixels`, one after the other, each up to its end in `ends`."""
    waiting: list[torch.jit.Future[int]] = []
    for first in range(num_threads):
        waiting.append(torch.jit.fork(_place_share, images, ends, pixels, first, num_threads))
    for share in waiting:
        torch.jit.wait(share)


def _place_share(images: list[torch.Tensor], ends: list[int], pixels: torch.Tensor, first: int, step: int) -> int:
    for place in range(first, len(images), step):
        values = images[place].reshape(-1)
        target_pixels = pixels[ends[place] - len(values) : ends[place]]
        # PyTorch gives copies of 32,768 values and more to another pool of threads, one pool for each calling thread.
        for target, source in zip(target_pixels.split(32_000), values.split(32_000)):  # noqa: B905  (TorchScript has no strict)
            target.copy_(source)
    return first


def _refusal(path: PathLike, problem: str) -> ConfigError:
    return ConfigError(
        f"dataset.path: the file {os.fspath(path)} {problem}. Next: copy the original again, or take it out of the"
        " dataset"
    )


def is_whole_jpeg(content: torch.Tensor) -> bool:
    """Return whether the bytes begin and end as a JPEG's: a GPU's decoder silently fills in missing parts."""
    view = content.numpy()
    return view[:2].tobytes() == b"\xff\xd8" and b"\xff\xd9" in view[-64:].tobytes()
