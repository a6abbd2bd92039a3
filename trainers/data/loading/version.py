"""A short digest of what a dataset holds, so that runs on different data are not taken for comparable."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

MANIFEST = "manifest.json"  # It lies beside drawn images and holds digests of them.
DIGEST_BYTES = 6


def digest(parts: Iterable[np.ndarray | Iterable[str]]) -> str:
    """Twelve hex digits that follow from the parts, arrays of any kind or words, and their order."""
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        array = np.ascontiguousarray(part if isinstance(part, np.ndarray) else np.array(list(part)))
        hasher.update(f"{array.dtype} {array.shape};".encode())
        hasher.update(array.tobytes())
    return hasher.hexdigest()


def manifest(folder: Path) -> np.ndarray:
    """The bytes of the manifest of drawn data in `folder`; none where the data came without."""
    path = folder / MANIFEST
    return np.frombuffer(path.read_bytes() if path.exists() else b"", np.uint8)
