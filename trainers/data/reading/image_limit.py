"""How large an image may be, by its file's header: a file of a few bytes can ask for gigabytes of pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MAX_IMAGE_PIXELS = 178_956_970  # where Pillow refuses to go on, too; 0.5 GiB as RGB. dataset.max_image_pixels overrides


def above_limit(size: Sequence[int] | np.ndarray, max_image_pixels: int) -> str:
    """What is wrong with an image of that size, height and width, and what raises the limit; empty where nothing is."""
    height, width = int(size[0]), int(size[1])
    if height * width <= max_image_pixels:
        return ""
    return (
        f"is {height:,} pixels high and {width:,} wide, {height * width:,} in all, and"
        f" dataset.max_image_pixels={max_image_pixels} are allowed; raise it if the image is that large"
    )
