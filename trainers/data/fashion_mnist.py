"""Fashion-MNIST: 70,000 grey-scale pictures, 28x28 pixels, of ten kinds of clothing.

Source: H. Xiao, K. Rasul and R. Vollgraf 2017, arXiv:1708.07747, https://github.com/zalandoresearch/fashion-mnist.

The files are in the IDX format of MNIST (http://yann.lecun.com/exdb/mnist/). It is big-endian: two zero bytes, one byte
of type (8: unsigned byte), one byte with the number of dimensions, one uint32 for each dimension, then the values in C
order.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import math
import os
import struct
import tempfile
import urllib.request
import zlib
from pathlib import Path

import numpy as np
from filelock import FileLock

from conf.schema import ConfigError
from tracking.base.paths import with_home
from trainers.data.images import Arrays, ImageData, Source
from trainers.data.reading.packed_file import is_content
from trainers.data.reading.regular_file import read_bytes

MIRROR = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
MD5 = {  # of the gzipped files, from the dataset's README
    "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
}
NUM_TRAIN = 60_000  # A fifth is held out for validation.
NUM_TEST = 10_000
IMAGE_SIZE = (28, 28)
CLASS_NAMES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
TIMEOUT_SEC = 60.0
UNSIGNED_BYTE = 8
NEXT_STEP = "replace the file by the original"


def fashion_mnist(path: str = "data/fashion_mnist", download: bool = False) -> ImageData:
    """Return the dataset in folder `path`. Its files' headers and lengths are checked now; the first batch reads them.

    Raises ConfigError if files are missing and `download` is off, if they cannot be downloaded, or are torn or others.
    """
    folder = with_home(path)
    missing = [name for name in MD5 if find(folder, name) is None]
    if missing and download:
        fetch_missing(folder)
    elif missing:
        names = ", ".join(f"{name}.gz" for name in missing)
        raise ConfigError(
            f"dataset.path={path}: {folder.resolve()} lacks {names} (or the same unpacked, without .gz). Next: set"
            f" dataset.path to the folder with these files, download them with dataset.download=true, or copy them"
            f" there from {MIRROR}"
        )

    def files(source: Source) -> list[tuple[Path, tuple[int, ...]]]:
        prefix, num_samples = ("t10k", NUM_TEST) if source == "test" else ("train", NUM_TRAIN)
        shapes = {"images-idx3": (num_samples, *IMAGE_SIZE), "labels-idx1": (num_samples,)}
        return [(_path(folder, f"{prefix}-{kind}-ubyte"), shape) for kind, shape in shapes.items()]

    def read(source: Source) -> Arrays:
        images, labels = (read_idx(*file) for file in files(source))
        return images, labels

    for file in (*files("train"), *files("test")):
        check_idx(*file)

    num_eval = NUM_TRAIN // 5
    return ImageData(
        name="fashion_mnist",
        num_classes=len(CLASS_NAMES),
        image_size=IMAGE_SIZE,
        class_names=CLASS_NAMES,
        num_train=NUM_TRAIN - num_eval,
        num_eval=num_eval,
        num_test=NUM_TEST,
        read=read,
    )


def find(folder: Path, name: str) -> Path | None:
    """Return the file of that name, unpacked or gzipped; None if it is missing."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _path(folder: Path, name: str) -> Path:
    # If the file has disappeared meanwhile, read_idx reports the name with .gz.
    return find(folder, name) or folder / f"{name}.gz"


def fetch_missing(folder: Path) -> None:
    """Download missing files; one of several processes downloads, and the others wait for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock", fallback_to_soft=False):
            for name, md5 in MD5.items():
                if find(folder, name) is None:
                    _fetch(MIRROR + f"{name}.gz", md5, folder / f"{name}.gz")
    except (OSError, http.client.HTTPException) as error:  # urllib's errors are OSErrors.
        raise ConfigError(
            f"dataset.download=true: downloading {MIRROR} to {folder.resolve()} failed ({error}). Next: let this"
            f" machine reach it, or copy {', '.join(f'{name}.gz' for name in MD5)} into dataset.path={folder} yourself"
        ) from error


def _fetch(url: str, md5: str, target: Path) -> None:
    """Download to a temporary file, and rename it once it is complete and its digest is right."""
    with urllib.request.urlopen(url, timeout=TIMEOUT_SEC) as response:
        content = response.read()
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if digest != md5:
        raise ConfigError(
            f"dataset.download=true: {url} has MD5 {digest} ({len(content)} bytes), expected {md5}."
            " Next: try again, or copy the file into dataset.path yourself"
        )
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).chmod(0o644)  # With mkstemp's 0600 other users of the folder could not read it.
        Path(temporary).replace(target)
    finally:
        Path(temporary).unlink(missing_ok=True)


def check_idx(path: Path, shape: tuple[int, ...]) -> None:
    """Raise ConfigError, as `read_idx` does, by the file's header and its length; the values are not read."""
    header = _magic(shape) + struct.pack(f">{len(shape)}I", *shape)
    if not is_content(path, header, len(header) + math.prod(shape)):
        read_idx(path, shape)  # It says what is wrong.


def read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Return the values of a file of unsigned bytes, gzipped if its name ends in .gz: uint8 [*shape], writable.

    Raises ConfigError, naming the file and what was expected, for any other content.
    """
    content = _content(path)
    magic = _magic(shape)
    if content[:4] != magic:
        raise ConfigError(
            f"{path}: begins with {content[:4].hex() or 'nothing'}, expected {magic.hex()} (IDX, unsigned bytes,"
            f" {len(shape)} dimensions). Next: {NEXT_STEP}"
        )
    header = struct.Struct(f">4x{len(shape)}I")
    if len(content) < header.size:
        raise ConfigError(f"{path}: ends after {len(content)} bytes, inside its header. Next: {NEXT_STEP}")
    declared = header.unpack_from(content)
    if declared != shape:
        raise ConfigError(
            f"{path}: holds {list(declared)} values (count first), expected {list(shape)}. Next: {NEXT_STEP}"
        )
    num_bytes = header.size + math.prod(shape)
    if len(content) != num_bytes:
        raise ConfigError(f"{path}: holds {len(content)} bytes, expected {num_bytes} by its header. Next: {NEXT_STEP}")
    return np.frombuffer(content, np.uint8, offset=header.size).reshape(shape).copy()


def _magic(shape: tuple[int, ...]) -> bytes:
    return bytes((0, 0, UNSIGNED_BYTE, len(shape)))


def _content(path: Path) -> bytes:
    try:
        raw = read_bytes(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error}). Next: {NEXT_STEP}") from error
    if path.suffix != ".gz":
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:  # not gzip, truncated, damaged
        raise ConfigError(
            f"{path}: is damaged or truncated at {len(raw)} bytes ({error}). Next: {NEXT_STEP}"
        ) from error
