"""JPEG files made for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Smooth colours, which JPEG keeps nearly as they are: uint8 [height, width, 3]."""
    coarse = np.random.RandomState(seed).randint(0, 256, (height // 16 + 2, width // 16 + 2, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def write(path: Path, image: np.ndarray, mode: str = "RGB", **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).convert(mode).save(path, format=options.pop("format", "JPEG"), quality=95, **options)
    return path
