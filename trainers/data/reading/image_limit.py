"""Limits the size of an image by its file's header: a file of a few bytes can claim gigabytes of pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MAX_IMAGE_PIXELS = 178_956_970  # Pillow's limit; 0.5 GiB as RGB. dataset.max_image_pixels overrides it.


def above_limit(size: Sequence[int] | np.ndarray, max_image_pixels: int) -> str:
    """Return a message for an image of a height and width above the limit, and how to raise it; empty otherwise."""
    height, width = int(size[0]), int(size[1])
    if height * width <= max_image_pixels:
        return ""
    return (
        f"is {height:,} pixels high and {width:,} wide, {height * width:,} in all, above"
        f" dataset.max_image_pixels={max_image_pixels}; raise it if the image is really that large"
    )
