"""JPEG files one by one, on the CPU: their bytes, their images, and a named refusal of what is broken.

torchvision's operators are called directly: they release the interpreter's lock, and the public functions around them,
which torchvision 0.29 deprecates, warn at each call.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import torch
import torchvision  # noqa: F401  (registers the operators)
from PIL import Image

from conf.schema import ConfigError

RGB = 3  # torchvision.io.ImageReadMode.RGB: grey and CMYK images are converted
PathLike = str | os.PathLike[str]


def read_file(path: PathLike) -> torch.Tensor:
    """The file's bytes, uint8 [length]. Raises ConfigError where it cannot be read or holds nothing.

    Read here and now: torchvision's operator maps the file, whose disk is then waited for by who first looks at it.
    """
    try:
        content = bytearray(Path(path).read_bytes())
    except OSError as error:
        raise _refusal(path, f"cannot be read ({error.strerror})") from error
    if not content:
        raise _refusal(path, "is empty")
    return torch.frombuffer(content, dtype=torch.uint8)


def decode_file(path: PathLike) -> np.ndarray:
    """The image in a file, uint8 [height, width, 3]. Raises ConfigError where there is none."""
    try:
        image: torch.Tensor = torch.ops.image.decode_jpeg(torch.ops.image.read_file(os.fspath(path)), RGB, False)
        return image.permute(1, 2, 0).numpy()
    except RuntimeError:
        pass  # another format under a JPEG's name, as ImageNet holds one, or a broken file: Pillow tells them apart
    content = read_file(path)
    try:
        with Image.open(io.BytesIO(content.numpy().tobytes())) as picture:
            return np.asarray(picture.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise _refusal(path, f"cannot be decoded as an image ({error})") from error


def _refusal(path: PathLike, problem: str) -> ConfigError:
    return ConfigError(
        f"dataset.path: the file {os.fspath(path)} {problem}; copy it from the dataset's original again, or take it out"
        " of the dataset"
    )


def is_whole_jpeg(content: torch.Tensor) -> bool:
    """Whether it begins as a JPEG and ends as one: a GPU's decoder fills up what is missing without a word."""
    view = content.numpy()
    return view[:2].tobytes() == b"\xff\xd8" and b"\xff\xd9" in view[-64:].tobytes()
