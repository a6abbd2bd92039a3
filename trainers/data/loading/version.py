"""A short digest of a dataset's content, so that runs on different data are not compared by mistake."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

MANIFEST = "manifest.json"  # file beside drawn images with their digests
DIGEST_BYTES = 6


def digest(parts: Iterable[np.ndarray | Iterable[str]]) -> str:
    """Return twelve hexadecimal digits from the parts, arrays of any dtype or texts, and their order."""
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        array = np.ascontiguousarray(part if isinstance(part, np.ndarray) else np.array(list(part)))
        hasher.update(f"{array.dtype} {array.shape};".encode())
        hasher.update(array.tobytes())
    return hasher.hexdigest()


def manifest(folder: Path) -> np.ndarray:
    """Return the bytes of the manifest of drawn data in `folder`; empty for data without a manifest."""
    path = folder / MANIFEST
    return np.frombuffer(path.read_bytes() if path.exists() else b"", np.uint8)
