"""Kernels on rows and pixels that lie more than 2**31 numbers behind the first, for `tests.trainers.triton_on_cpu`.

They lie in a sparse file. Triton's interpreter would copy a tensor over all of it, so kernels get the first row and the
stride to the next.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch

APART, NUM, HEADS, WIDTH = 2**25, 66, 2, 16  # of the rows; a block of the kernels has 64
SIDES, CORNER = (33_100, 65_001), (4, 6)  # of an image, and of its last corner, which is looked at


def hollow(folder: str, dtype: str, size: int) -> np.ndarray:
    return np.memmap(Path(folder) / f"hollow.{dtype}", dtype, "w+", shape=(size,))


def attention() -> dict[str, torch.Tensor]:
    """What is seen and the three gradients, of rows far apart and, for comparison, of the same close together."""
    from trainers.ops import attention_triton

    generator = torch.Generator().manual_seed(0)
    parts = torch.randn(NUM, 3, HEADS, WIDTH, generator=generator).half()
    upstream = torch.randn(NUM, HEADS, WIDTH, generator=generator).half()
    spans = [torch.full((NUM,), value, dtype=torch.int32) for value in (0, NUM, 0, NUM)]
    seed = torch.zeros(1, dtype=torch.int64)
    out, logs = attention_triton.forward(parts, None, spans, seed, 0.0)
    of_parts, _ = attention_triton.backward(upstream, parts, None, out, logs, spans, seed, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        rows = hollow(folder, "float16", NUM * APART).reshape(NUM, APART)
        row = 3 * HEADS * WIDTH
        rows[:, :row] = parts.flatten(1)
        asks, keys, values, of_asks, of_keys, of_values = (
            torch.from_numpy(rows[0, first : first + row // 3]) for first in range(0, 2 * row, row // 3)
        )
        deltas, options = torch.empty_like(logs), attention_triton._options(parts, 0.0)
        far_out, far_logs = torch.empty_like(out), torch.empty_like(logs)
        attention_triton._attention_forward[(2, HEADS)](
            asks, keys, values, far_out, far_logs, *spans[:2], seed, NUM, APART, APART, **options
        )
        attention_triton._attention_backward_queries[(2, HEADS)](
            asks, keys, values, out, logs, upstream, deltas, of_asks, *spans[:2], seed, NUM, APART, APART, APART,
            **options,
        )  # fmt: skip
        attention_triton._attention_backward_keys[(3, HEADS)](
            asks, keys, values, logs, upstream, deltas, of_keys, of_values, *spans, seed, NUM, NUM, APART, APART,
            APART, **options,
        )  # fmt: skip
        far = torch.from_numpy(rows[:, row : 2 * row].copy()).view_as(of_parts)
    return {"near_out": out, "far_out": far_out, "near_gradient": of_parts, "far_gradient": far}


def cut() -> dict[str, torch.Tensor]:
    """The last corner of a large, otherwise black image, in both layouts."""
    from trainers.data import crop_triton

    height, width = SIDES
    rows, columns = CORNER
    seen = {}
    corner = torch.randint(0, 256, (rows, columns, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    crop = torch.tensor([[width - columns, height - rows, width, height]], dtype=torch.float32)
    for layout, interleaved in (("pixels", True), ("planes", False)):
        with tempfile.TemporaryDirectory() as folder:
            image = hollow(folder, "uint8", height * width * 3)
            whole = image.reshape((height, width, 3) if interleaved else (3, height, width))
            whole = whole if interleaved else whole.transpose(1, 2, 0)
            whole[-rows:, -columns:] = corner
            out = torch.empty(1, rows, columns, 3, dtype=torch.uint8)
            crop_triton._cut[(1, rows, 1)](
                torch.from_numpy(image[:1]), torch.tensor([0]), torch.tensor([SIDES]), torch.tensor([interleaved]),
                crop, torch.tensor([False]), torch.tensor([CORNER]), out, rows, columns, BLOCK=crop_triton.BLOCK,
            )  # fmt: skip
        seen[f"far_{layout}"] = out[0]
    return {**seen, "far_corner": corner}
