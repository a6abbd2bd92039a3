"""Masks on the device, against the definitions, pycocotools and torchvision."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco_mask
from torchvision.models.detection import roi_heads
from torchvision.ops import roi_align

from tests.trainers import synchronization
from trainers.data.coco.outlines import outline_edges
from trainers.models.maskrcnn import masks
from trainers.models.maskrcnn.masks import compress, mask_targets, paste, rasterise

# pycocotools makes arrays by a protocol that NumPy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])]
SIDE = 120


def star(rng: np.random.Generator, low: float = 10, high: float = 110) -> list[float]:
    """A polygon that does not cross itself."""
    angles = np.sort(rng.uniform(0, 2 * np.pi, 15))
    radii = rng.uniform(0.2, 0.5, 15) * (high - low) / 2
    centre = rng.uniform(low + (high - low) / 4, high - (high - low) / 4, 2)
    points = centre + radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return (points if rng.random() < 0.5 else points[::-1]).flatten().tolist()


def batch(outlines: list, side: int = SIDE) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Edges and owners with padding, and bounding boxes."""
    edges, starts = outline_edges(outlines, np.full((len(outlines), 2), side))
    boxes = []
    for begin, end in pairwise(starts):
        points = edges[begin:end].reshape(-1, 2)
        boxes.append([*points.min(0), *points.max(0)])
    owner = np.repeat(np.arange(len(outlines)), np.diff(starts))
    edges = np.concatenate([edges, np.zeros((7, 4), np.float32)])
    owner = np.concatenate([owner, np.full(7, len(outlines))])
    return torch.tensor(edges), torch.tensor(owner), torch.tensor(np.array(boxes), dtype=torch.float32)


def full_masks(outlines: list, side: int = SIDE) -> torch.Tensor:
    """COCO's own masks, uint8 [n, side, side]."""
    rles = [
        coco_mask.merge(coco_mask.frPyObjects(outline, side, side)) if isinstance(outline, list) else outline
        for outline in outlines
    ]
    return torch.tensor(np.stack([coco_mask.decode(rle) for rle in rles]))


def distance(points: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """From each of points [n, 2] to the nearest of edges [E, 4]: [n]."""
    begin, along = edges[:, :2], edges[:, 2:] - edges[:, :2]
    share = ((points[:, None] - begin) * along).sum(dim=2) / along.square().sum(dim=1).clamp(min=1e-9)
    nearest = begin + share.clamp(0, 1)[..., None] * along
    return (points[:, None] - nearest).norm(dim=2).amin(dim=1)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
@example(14985)  # four centres of one outline
def test_grids_are_cocos_masks_where_cells_are_pixels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    outlines = [[star(rng)], [star(rng), star(rng), star(rng)], [star(rng, 60, 110), star(rng, 0, 50)]]
    edges, owner, _ = batch(outlines)
    boxes = torch.tensor([[0.0, 0, SIDE, SIDE]]).expand(3, 4)
    masks = rasterise(edges, owner, boxes, SIDE)
    # COCO draws outlines on a grid of a fifth of a pixel: drawn nine times as large, of a 45th. Only a centre that lies
    # within a cell of that grid from an outline may be on its other side.
    large = full_masks([[[9 * x for x in part] for part in outline] for outline in outlines], 9 * SIDE)
    for index, wrong in enumerate(masks != large[:, 4::9, 4::9]):
        centres = wrong.nonzero().flip(1) + 0.5
        assert (distance(centres, edges[owner == index]) < 2**0.5 / 45).all()
    assert (masks.sum(dim=(1, 2)) > 100).all()


def test_a_grid_lies_over_its_box() -> None:
    rng = np.random.default_rng(0)
    rectangle = [20.0, 30, 60, 30, 60, 50, 20, 50]
    edges, owner, _ = batch([[rectangle], [star(rng)]])
    box = torch.tensor([[10.0, 30, 50, 70], [0, 0, 1, 1]])
    grid = rasterise(edges, owner, box, 8)[0]
    expected = torch.zeros(8, 8, dtype=torch.uint8)
    expected[:4, 2:] = 1  # x from 20, y up to 50; what lies right of the box changes nothing
    assert torch.equal(grid, expected)


def test_run_lengths_make_grids_exactly() -> None:
    rng = np.random.default_rng(1)
    expected = np.kron(rng.integers(0, 2, (3, 24, 24)), np.ones((1, 5, 5), int)).astype(np.uint8)
    outlines = [coco_mask.encode(np.asfortranarray(mask)) for mask in expected]
    edges, owner, _ = batch(outlines)
    masks = rasterise(edges, owner, torch.tensor([[0.0, 0, SIDE, SIDE]]).expand(3, 4), SIDE)
    assert np.array_equal(masks.numpy(), expected)


def test_padding_boxes_are_empty_and_finite() -> None:
    edges, owner = torch.zeros(8, 4), torch.full((8,), 2)
    grids = rasterise(edges, owner, torch.zeros(2, 4), 4)
    assert grids.shape == (2, 4, 4)
    assert not grids.any()
    targets = mask_targets(grids, torch.zeros(2, 4), torch.zeros(3, 4), torch.zeros(3, dtype=torch.int64), 4)
    assert torch.equal(targets, torch.zeros(3, 4, 4))


def regions(boxes: torch.Tensor, instance: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Shifted and stretched boxes, as proposals are."""
    extent = (boxes[:, 2:] - boxes[:, :2])[instance]
    return boxes[instance] + torch.rand(len(instance), 4, generator=generator).sub(0.5).mul(0.4) * extent.repeat(1, 2)


def test_targets_are_those_of_roi_align_on_the_full_mask() -> None:
    rng, generator = np.random.default_rng(2), torch.Generator().manual_seed(0)
    scale = 6  # the full mask, drawn large, so that its pixels do not matter
    outlines = [[star(rng)] for _ in range(12)]
    edges, owner, boxes = batch(outlines)
    instance = torch.randint(12, (60,), generator=generator)
    rois = regions(boxes, instance, generator)
    large = full_masks([[[scale * x for x in part] for part in outline] for outline in outlines], SIDE * scale)
    indexed = torch.cat([instance[:, None].float(), rois * scale], dim=1)
    expected = roi_align(large[:, None].float(), indexed, (28, 28), 1.0, sampling_ratio=-1, aligned=True)[:, 0]
    errors = {}
    for size in (28, 56, 224):
        targets = mask_targets(rasterise(edges, owner, boxes, size), boxes, rois, instance)
        errors[size] = float((targets - expected).abs().mean())
    assert errors[224] < 0.003
    assert errors[224] < errors[56] < 0.01
    assert errors[56] < errors[28] < 0.03


def test_targets_of_a_whole_box_are_its_coverage() -> None:
    edges, owner, _ = batch([[[0.0, 0, 8, 0, 8, 3, 0, 3]]])
    boxes = torch.tensor([[0.0, 0, 8, 8]])
    rois = torch.tensor([[0.0, 0, 8, 8], [-8, 0, 8, 8], [4, 2, 12, 6]])
    targets = mask_targets(rasterise(edges, owner, boxes, 8), boxes, rois, torch.zeros(3, dtype=torch.int64), 4)
    assert targets[0].tolist() == [[1] * 4, [0.5] * 4, [0] * 4, [0] * 4]
    assert targets[1].tolist() == [[0, 0, 1, 1], [0, 0, 0.5, 0.5], [0] * 4, [0] * 4]
    assert targets[2].tolist() == [[1, 1, 0, 0], [0] * 4, [0] * 4, [0] * 4]


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_changes_nothing(device: str) -> None:
    edges, owner, boxes = (x.to(device) for x in batch([[star(np.random.default_rng(3))]]))
    instance = torch.zeros(1, dtype=torch.int64, device=device)

    def targets() -> torch.Tensor:
        return mask_targets(rasterise(edges, owner, boxes, 56), boxes, boxes, instance)

    expected = targets()
    with torch.autocast(device, torch.bfloat16):
        masks = targets()
    assert masks.dtype == torch.float32
    assert torch.equal(masks, expected)


@pytest.mark.gpu
@needs_gpu
def test_compiles_and_waits_for_nothing() -> None:
    edges, owner, boxes = (x.cuda() for x in batch([[star(np.random.default_rng(s))] for s in range(20)]))
    instance = torch.arange(20, device="cuda")

    def targets(edges: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        return mask_targets(rasterise(edges, owner, boxes, 56), boxes, boxes, instance)

    compiled = torch.compile(targets, fullgraph=True)
    compiled(edges, boxes)
    with synchronization.refused():
        eager, fused = targets(edges, boxes), compiled(edges, boxes)
    assert (eager - fused).abs().mean() < 1e-3
    cpu = mask_targets(rasterise(edges.cpu(), owner.cpu(), boxes.cpu(), 56), boxes.cpu(), boxes.cpu(), instance.cpu())
    assert (eager.cpu() - cpu).abs().mean() < 1e-3


def pasted_by_definition(mask: torch.Tensor, box: torch.Tensor, height: int, width: int) -> np.ndarray:
    x = (torch.arange(width) + 0.5 - box[0]) / (box[2] - box[0]) * 2 - 1
    y = (torch.arange(height) + 0.5 - box[1]) / (box[3] - box[1]) * 2 - 1
    grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)[None]
    return (F.grid_sample(mask[None, None], grid, align_corners=False)[0, 0] > 0.5).numpy()


def detections(num: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Blobs in boxes that also lie across and beyond the images' borders."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(15, 90, (num, 2), generator=generator)
    centre = torch.rand(num, 2, generator=generator) * sizes.flip(1) * 1.2
    half = torch.rand(num, 2, generator=generator) * 50 + 0.1
    blobs = F.interpolate(torch.rand(num, 1, 7, 7, generator=generator), size=(28, 28), mode="bicubic")[:, 0].clamp(
        0, 1
    )
    return blobs, torch.cat([centre - half, centre + half], dim=1), sizes


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("chunk", [1 << 22, 3000])
def test_pasted_masks_are_those_of_the_definition(monkeypatch: pytest.MonkeyPatch, chunk: int, device: str) -> None:
    monkeypatch.setattr(masks, "CHUNK_PIXELS", chunk)
    blobs, boxes, sizes = detections(150)
    boxes[0] = torch.tensor([0.0, 0, sizes[0, 1], sizes[0, 0]])  # the whole image
    blobs[0] = 1
    boxes[1] = boxes[1] - 1000  # none of the image
    boxes[2] = torch.tensor([5.2, 5.2, 5.4, 9.0])  # no pixel's centre
    strings = paste(blobs.to(device), boxes.to(device), sizes)
    assert len(strings) == 150
    num_wrong = 0
    for blob, box, (height, width), string in zip(blobs, boxes, sizes.tolist(), strings, strict=True):
        decoded = coco_mask.decode({"size": [height, width], "counts": string})
        num_wrong += (decoded != pasted_by_definition(blob, box, height, width)).sum()
        assert coco_mask.encode(np.asfortranarray(decoded))["counts"] == string
    assert num_wrong <= 3  # rounding at 0.5
    assert coco_mask.decode({"size": sizes[0].tolist(), "counts": strings[0]}).mean() > 0.8
    assert not coco_mask.decode({"size": sizes[1].tolist(), "counts": strings[1]}).any()


def test_runs_go_on_from_column_to_column() -> None:
    full, sizes = torch.ones(2, 28, 28), torch.tensor([[6, 9], [6, 9]])
    boxes = torch.tensor([[2.0, -20, 5, 26], [0, -20, 9, 26]])
    strings = paste(full, boxes, sizes)
    for string, columns in zip(strings, (slice(2, 5), slice(0, 9)), strict=True):
        mask = np.zeros((6, 9), np.uint8, order="F")
        mask[:, columns] = 1
        assert coco_mask.encode(mask)["counts"] == string


def test_nothing_is_pasted_for_no_detections() -> None:
    assert paste(torch.zeros(0, 28, 28), torch.zeros(0, 4), torch.zeros(0, 2, dtype=torch.int64)) == []


def test_a_mask_comes_back_from_its_target_and_closer_than_torchvisions() -> None:
    rng = np.random.default_rng(4)
    outlines = [[star(rng)] for _ in range(20)]
    edges, owner, boxes = batch(outlines)
    truth, places = full_masks(outlines), torch.arange(20)

    def overlaps(masks: torch.Tensor) -> torch.Tensor:
        return (masks & truth).sum(dim=(1, 2)) / (masks | truth).sum(dim=(1, 2))

    strings = paste(
        mask_targets(rasterise(edges, owner, boxes, 56), boxes, boxes, places), boxes, torch.full((20, 2), SIDE)
    )
    ours = torch.tensor(coco_mask.decode([{"size": [SIDE, SIDE], "counts": string} for string in strings])).permute(
        2, 0, 1
    )
    their_targets = roi_heads.project_masks_on_boxes(truth, boxes, places, 28)
    theirs = roi_heads.paste_masks_in_image(their_targets[:, None], boxes, (SIDE, SIDE))[:, 0] > 0.5
    assert overlaps(ours).min() > 0.9
    assert 1 - overlaps(ours).mean() < 0.6 * (1 - overlaps(theirs.to(torch.uint8)).mean())


@given(st.lists(st.lists(st.integers(0, 2**24), min_size=1, max_size=9), min_size=1, max_size=5))
def test_run_lengths_are_compressed_as_by_coco(groups: list[list[int]]) -> None:
    lengths = torch.tensor([run for group in groups for run in group])
    starts = torch.tensor(np.cumsum([0, *map(len, groups)]))
    expected = [
        coco_mask.frPyObjects({"size": [sum(group), 1], "counts": group}, sum(group), 1)["counts"] for group in groups
    ]
    assert compress(lengths, starts) == expected
