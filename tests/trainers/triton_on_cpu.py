"""The Triton kernels without a GPU: Triton's interpreter runs them on the CPU, slowly, so the inputs are small.

It has to be asked for before Triton is imported: `results` runs this file in a process of its own, once for all tests,
and the file imports little, so that this does not take long.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from trainers.data.jpeg.reader import Decoded
    from trainers.data.language.grammar import Grammar

IOU, EPS = 0.5, 1e-5
CANVAS, STRIDE, NUM_LEVELS, BINS = (512, 768), 4, 4, 2
# Width and height of regions of all four levels, one of them less than a cell large.
SIDES = ((20.0, 20.0), (60.0, 90.0), (110.0, 115.0), (150.0, 200.0), (300.0, 250.0), (640.0, 400.0), (3.0, 0.5))


class Problems(NamedTuple):
    """Arguments of trainers.ops.nms.nms_mask."""

    boxes: torch.Tensor
    valid: torch.Tensor


class Scored(NamedTuple):
    """Arguments of trainers.ops.additive_attention.additive_scores, and a gradient of what it returns."""

    query: torch.Tensor
    key: torch.Tensor
    vector: torch.Tensor
    bias: torch.Tensor
    gradient: torch.Tensor


class Regions(NamedTuple):
    """Arguments of trainers.ops.roi_align.roi_align, and a gradient of what it returns."""

    features: list[torch.Tensor]
    rois: torch.Tensor
    image: torch.Tensor
    valid: torch.Tensor
    gradient: torch.Tensor


class Attended(NamedTuple):
    """Arguments of trainers.ops.attention.attend and `spans`, and a gradient of what is seen."""

    parts: torch.Tensor
    source: torch.Tensor | None
    queries: torch.Tensor
    keys: torch.Tensor
    causal: bool
    upstream: torch.Tensor


def sentences(lengths: list[list[int]], width: int) -> torch.Tensor:
    """The number of each token's sentence in its row, of sentences with these lengths and padding behind them."""
    rows = [torch.repeat_interleave(torch.arange(1, len(row) + 1), torch.tensor(row).long()) for row in lengths]
    return torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in rows])


def attended(kind: str) -> Attended:
    """Three rows, one of them empty. A token looks at its `own` sentence, at what is `earlier` there, or at an
    `other` sentence, which may be missing."""
    torch.manual_seed(0)
    queries = sentences([[3, 1, 17, 5], [40, 1], []], 48)
    keys = sentences([[4, 2, 9, 33], [13], []], 56) if kind == "other" else queries
    parts = torch.randn(queries.numel(), 1 if kind == "other" else 3, 2, 16)
    source = torch.randn(keys.numel(), 2, 2, 16) if kind == "other" else None
    return Attended(parts, source, queries, keys, kind == "earlier", torch.randn(queries.numel(), 2, 16))


def attend_to(given: Attended, device: torch.device) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """What is seen, and the gradients of `parts` and `source`."""
    from trainers.ops.attention import attend, spans

    tensors = [given.parts, *([] if given.source is None else [given.source])]
    leaves = [tensor.to(device).requires_grad_() for tensor in tensors]
    where = spans(given.queries.to(device), given.keys.to(device), given.causal)
    out = attend(leaves[0], leaves[1] if len(leaves) > 1 else None, where, 0.0)
    return out.detach(), list(torch.autograd.grad(out, leaves, given.upstream.to(device)))


def dropped() -> dict[str, torch.Tensor]:
    """What tokens that look at 48 others alike see of ones, with 30 % dropped, and the gradient of its sum."""
    from trainers.ops.attention import attend, spans

    numbers = sentences([[48, 48]], 96)
    parts = torch.zeros(96, 3, 2, 16)
    parts[:, 2] = 1
    parts.requires_grad_()
    out = attend(parts, None, spans(numbers, numbers), 0.3)
    (gradient,) = torch.autograd.grad(out.sum(), parts)
    return {"dropped_out": out.detach(), "dropped_values": parts.detach()[:, 2], "dropped_gradient": gradient[:, 2]}


def problems(num_problems: int = 2, num_boxes: int = 70, seed: int = 0) -> Problems:
    """Crowded boxes, a fifth of them not valid. Box 1 overlaps box 0 by IOU exactly, box 3 repeats box 2."""
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(num_problems, num_boxes, 2, generator=generator) * 40
    size = torch.rand(num_problems, num_boxes, 2, generator=generator) * 30 + 5
    boxes = torch.cat((corner, corner + size), dim=2).round()  # overlaps have no rounding errors
    boxes[:, 0], boxes[:, 1] = torch.tensor((100.0, 0.0, 108.0, 4.0)), torch.tensor((100.0, 0.0, 104.0, 4.0))
    boxes[:, 3] = boxes[:, 2]
    valid = torch.rand(num_problems, num_boxes, generator=generator) < 0.8
    valid[:, :4] = True
    return Problems(boxes, valid)


def regions(num_channels: int = 5, copies: int = 1, seed: int = 28) -> Regions:
    """Regions in mixed order on two images: some reach beyond them, one lies outside, every fourth is not valid."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (side // STRIDE for side in CANVAS)
    features = [
        torch.randn(2, num_channels, rows >> level, columns >> level, generator=generator)
        for level in range(NUM_LEVELS)
    ]
    size = torch.tensor([*SIDES, (30.0, 40.0)]).repeat(copies, 1)
    corner = torch.rand(len(size), 2, generator=generator) * torch.tensor(CANVAS[::-1]) - size / 2
    corner[-1] = torch.tensor((2000.0, 3000.0))
    order = torch.randperm(len(size), generator=generator)
    number = torch.arange(len(size))
    gradient = torch.randn(len(size), num_channels, BINS, BINS, generator=generator)
    return Regions(features, torch.cat((corner, corner + size), dim=1)[order], order % 2, number % 4 != 1, gradient)


def scored(num_queries: int = 5, num_keys: int = 19, rows: int = 3, width: int = 70) -> Scored:
    """Sizes that fill no block of the kernels."""
    generator = torch.Generator().manual_seed(5)
    sizes = ((num_queries, rows, width), (num_keys, rows, width), (width,), (width,), (rows, num_queries, num_keys))
    return Scored(*(torch.randn(size, generator=generator) for size in sizes))


class Normalised(NamedTuple):
    """A layer's maps, weight and bias, and a gradient of what trainers.ops.stem.NormReluPool returns."""

    maps: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor
    gradient: torch.Tensor


def normalised(n: int = 2, channels: int = 5, height: int = 7, width: int = 20, seed: int = 4) -> Normalised:
    """Sizes that fill no tile, odd and even. A weight is negative, one is zero, and some windows are dead."""
    generator = torch.Generator().manual_seed(seed)
    maps = torch.randn(n, channels, height, width, generator=generator).to(memory_format=torch.channels_last)
    weight, bias = torch.randn(2, channels, generator=generator)
    weight[0], weight[1], bias[2] = -1.0, 0.0, -2.0
    pooled = (n, channels, (height + 1) // 2, (width + 1) // 2)
    gradient = torch.randn(pooled, generator=generator).to(memory_format=torch.channels_last)
    return Normalised(maps, weight, bias, gradient)


class Anchors(NamedTuple):
    """Arguments of trainers.ops.overlaps.best_overlaps."""

    anchors: torch.Tensor
    boxes: torch.Tensor
    real: torch.Tensor


def anchors(num_anchors: int = 700, num_objects: int = 6, seed: int = 6) -> Anchors:
    """Three images, the last without objects. Two anchors tie for an object, and two objects for all anchors."""
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(num_anchors + 3 * num_objects, 2, generator=generator) * 300
    size = torch.rand(len(corner), 2, generator=generator) * 200 + 1
    places, boxes = torch.cat((corner, corner + size), dim=1).split([num_anchors, 3 * num_objects])
    boxes = boxes.reshape(3, num_objects, 4)
    places[7], boxes[0, 1], boxes[1, 3] = places[5], places[5], boxes[1, 2]
    real = torch.rand(3, num_objects, generator=generator) < 0.7
    real[0, 1] = real[1, 2] = real[1, 3] = True
    real[2] = False
    return Anchors(places, boxes, real)


def cuts() -> tuple[Decoded, torch.Tensor, torch.Tensor, torch.Tensor, tuple[int, int]]:
    """Arguments of trainers.data.crop.crop_resize: noise of several sizes, both layouts, some flipped."""
    from trainers.data.jpeg.reader import Decoded

    rng = np.random.RandomState(3)
    sizes = np.array([[7, 9], [40, 33], [1, 1], [20, 64], [12, 5], [6, 25]])
    lengths = 3 * sizes.prod(axis=1)
    pixels = torch.from_numpy(rng.randint(0, 256, 5 + lengths.sum(), dtype=np.uint8))  # the first begins at 5
    offsets = torch.from_numpy(5 + np.cumsum(lengths) - lengths)
    ends = torch.from_numpy(np.sort(rng.random_sample((2, 6, 2)), axis=0) * sizes[:, ::-1]).float()
    ends[:, -1] = torch.tensor([[0, 0], [25, 6]])  # the whole of it, a little shrunk
    interleaved = torch.tensor([0, 1, 1, 0, 1, 0]).bool()
    decoded = Decoded(pixels, offsets, torch.from_numpy(sizes), interleaved, sizes)
    out_sizes = torch.tensor([[5, 90], [4, 16], [3, 2], [5, 21], [1, 90], [5, 21]])
    return decoded, torch.hstack((ends[0], ends[1])), torch.tensor([0, 1, 0, 1, 1, 0]).bool(), out_sizes, (5, 90)


@functools.cache
def results(module: str = "tests.trainers.triton_on_cpu") -> dict[str, torch.Tensor]:
    """What a module writes into a file in a process that interprets Triton; this one writes what `compute` returns."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.pt"
        subprocess.run(
            [sys.executable, "-m", module, str(file)],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
            check=True,
        )
        tensors: dict[str, torch.Tensor] = torch.load(file)
    return tensors


def language() -> tuple[Grammar, torch.Tensor, int, int]:
    """Arguments of trainers.data.language.grammar_triton.sequences but the tables; sizes that fill no block."""
    from trainers.data.language.grammar import Grammar

    return Grammar(vocabulary=100, order=3, branches=6), torch.arange(7, 42), 9, 2**63 + 5


def compute() -> dict[str, torch.Tensor]:
    sys.modules["torchvision"] = types.ModuleType("torchvision")  # takes 7 s to import, and is not called here
    from tests.trainers import far_rows
    from trainers.data import crop_triton
    from trainers.data.language import grammar_triton
    from trainers.ops import additive_attention_triton, nms_triton
    from trainers.ops.overlaps import best_overlaps_triton
    from trainers.ops.overlaps.best_overlaps import ALMOST
    from trainers.ops.roi_align import SAMPLES, pyramid_level
    from trainers.ops.roi_align_triton import RoiAlign
    from trainers.ops.stem import norm_relu_pool_triton
    from trainers.ops.stem.norm_relu_pool import pooled_like

    features, rois, image, valid, gradient = regions()
    level = pyramid_level(rois, 2, 2 + NUM_LEVELS - 1)
    features = [feature.requires_grad_() for feature in features]
    pooled = RoiAlign.apply(rois, image, valid, level, BINS, STRIDE, SAMPLES, *features)
    (pooled * gradient).sum().backward()
    gradients = {f"gradient{index}": feature.grad for index, feature in enumerate(features)}
    cut = crop_triton.crop_resize(*cuts())
    seen = {}
    for kind in ("own", "earlier", "other"):
        seen[f"attention_{kind}"], of_inputs = attend_to(attended(kind), torch.device("cpu"))
        seen |= {f"attention_{kind}_gradient{number}": gradient for number, gradient in enumerate(of_inputs)}
    seen |= dropped() | far_rows.attention() | far_rows.cut()
    spoken, *rest = language()
    seen["language"] = grammar_triton.sequences(spoken, grammar_triton.tables(spoken, torch.device("cpu")), *rest)
    *tensors, of_scores = scored()
    gradients["scores"] = additive_attention_triton.scores(*tensors)
    names = [f"scores_{name}" for name in Scored._fields]
    gradients |= dict(zip(names, additive_attention_triton.gradients(of_scores, *tensors), strict=False))
    maps, weight, bias, upstream = normalised()
    variance, mean = torch.var_mean(maps, dim=(0, 2, 3), correction=0)
    rstd = (variance + EPS).rsqrt()
    seen["pooled_maps"], places = pooled_like(maps, maps.dtype), pooled_like(maps, torch.int8)
    norm_relu_pool_triton.pool(maps, weight, bias, mean, rstd, seen["pooled_maps"], places)
    of_layer = norm_relu_pool_triton.gradients(upstream, maps, places, weight, mean, rstd)
    seen |= {f"pooled_gradient_{name}": gradient for name, gradient in zip(Normalised._fields, of_layer, strict=False)}
    overlaps = best_overlaps_triton.best_overlaps(*anchors(), ALMOST)
    seen |= {f"overlaps{number}": tensor for number, tensor in enumerate(overlaps)}
    return {**seen, "keep": nms_triton.keep(*problems(), IOU), "pooled": pooled.detach(), "cut": cut, **gradients}


if __name__ == "__main__":
    torch.save(compute(), sys.argv[1])
