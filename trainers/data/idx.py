"""The IDX file format of MNIST and its successors: http://yann.lecun.com/exdb/mnist/ ("the IDX file format").

It is big-endian: two zero bytes, one byte of type (8: unsigned byte), one byte with the number of dimensions, one
uint32 for each dimension, then the values in C order.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from conf.schema import ConfigError
from trainers.data.reading.regular_file import read_bytes

UNSIGNED_BYTE = 8
NEXT_STEP = "replace the file by the original"


def read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Return the values of a file of unsigned bytes, gzipped if its name ends in .gz: uint8 [*shape], writable.

    Raises ConfigError, naming the file and what was expected, for any other content.
    """
    content = _content(path)
    magic = bytes((0, 0, UNSIGNED_BYTE, len(shape)))
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
