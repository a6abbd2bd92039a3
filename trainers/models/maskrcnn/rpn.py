"""The region proposal network without its convolutions: anchors, targets, losses and proposals.

S. Ren et al. 2015 (arXiv:1506.01497) on a feature pyramid (T.-Y. Lin et al. 2016, arXiv:1612.03144), with torchvision's
constants. It processes all images of a batch at once, in fixed shapes, and the host never waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from trainers.models.maskrcnn.sampling import IGNORED, NEGATIVE, POSITIVE, Sample, sample
from trainers.ops import boxes as box_ops
from trainers.ops.nms import nms_mask
from trainers.ops.overlaps import best_overlaps

ANCHOR_SIZES = (32, 64, 128, 256, 512)  # pixels, one size for each level
ASPECT_RATIOS = (0.5, 1.0, 2.0)  # height to width
FIRST_STRIDE = 4  # image pixels per cell of the first level
POSITIVE_IOU, NEGATIVE_IOU = 0.7, 0.3
NUM_SAMPLES, POSITIVE_SHARE = 256, 0.5
NMS_IOU = 0.7
MIN_SIZE = 1e-3  # pixels; smaller proposals are dropped
CODING = (1.0, 1.0)
BETA = 1 / 9  # where smooth L1 changes from quadratic to linear


def anchors(canvas: tuple[int, int], shapes: Sequence[tuple[int, int]], device: torch.device) -> list[torch.Tensor]:
    """Return the anchors of each level: float32 [height * width * 3, 4], row by row, for maps of `shapes`."""
    levels = []
    for size, (rows, columns) in zip(ANCHOR_SIZES, shapes, strict=True):
        ratio = torch.tensor(ASPECT_RATIOS).sqrt()
        half_height, half_width = size * ratio / 2, size / ratio / 2
        base = torch.stack((-half_width, -half_height, half_width, half_height), dim=1).round()
        y = torch.arange(rows) * (canvas[0] // rows)
        x = torch.arange(columns) * (canvas[1] // columns)
        y, x = (grid.flatten() for grid in torch.meshgrid(y, x, indexing="ij"))
        shift = torch.stack((x, y, x, y), dim=1)
        levels.append((shift[:, None] + base).reshape(-1, 4).to(device))
    return levels


def targets(
    all_anchors: torch.Tensor, boxes: torch.Tensor, real: torch.Tensor, use: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the label of each anchor, int8 [n, A], and the object that it overlaps most, int64 [n, A].

    Args:
        all_anchors: float32 [A, 4]
        boxes: float32 [n, G, 4]
        real: bool [n, G], False for padding among the boxes
        use: bool [n], False for images that only pad the batch
    """
    # An object that no anchor overlaps enough gets the anchors that overlap it most, ties included.
    best, matched, is_most = best_overlaps(all_anchors, boxes, real)
    positive = (best >= POSITIVE_IOU) | is_most
    label = torch.where(positive, POSITIVE, torch.where(best < NEGATIVE_IOU, NEGATIVE, IGNORED))
    return torch.where(use[:, None], label, IGNORED).to(torch.int8), matched


def losses(
    logits: torch.Tensor,
    deltas: torch.Tensor,
    all_anchors: torch.Tensor,
    boxes: torch.Tensor,
    matched: torch.Tensor,
    drawn: Sample,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return objectness and box loss, means over the drawn anchors, for logits [n, A] and deltas [n, A, 4]."""
    num = drawn.valid.sum().clamp(min=1)
    objectness = F.binary_cross_entropy_with_logits(
        logits.gather(1, drawn.chosen).float(), drawn.positive.float(), reduction="none"
    )
    wide = drawn.chosen.unsqueeze(2).expand(-1, -1, 4)
    object_index = matched.gather(1, drawn.chosen).unsqueeze(2).expand(-1, -1, 4)
    box_targets = box_ops.encode(boxes.gather(1, object_index), all_anchors[drawn.chosen], CODING)
    # Padding gives infinite targets, and infinity times zero is NaN.
    box_targets = torch.where(drawn.positive.unsqueeze(2), box_targets, 0.0)
    off = F.smooth_l1_loss(deltas.gather(1, wide).float(), box_targets, beta=BETA, reduction="none").sum(dim=2)
    return (objectness * drawn.valid).sum() / num, (off * drawn.positive).sum() / num


def draw(labels: torch.Tensor) -> Sample:
    return sample(labels, NUM_SAMPLES, POSITIVE_SHARE)


@torch.no_grad()
def propose(
    logits: Sequence[torch.Tensor],
    deltas: Sequence[torch.Tensor],
    level_anchors: Sequence[torch.Tensor],
    sizes: torch.Tensor,
    num_before: int,
    num_after: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the best regions of each image, float32 [n, num_after, 4], and their validity, bool [n, num_after].

    Args:
        logits, deltas: for each level, [n, A_l] and [n, A_l, 4]
        sizes: float32 [n, 2], height and width of each image on its canvas; regions are clipped to them
        num_before: number of best regions of a level and image that enter non-maximum suppression
        num_after: number of best regions of an image that are returned
    """
    scores, coded, bases = [], [], []
    for level_logits, level_deltas, base in zip(logits, deltas, level_anchors, strict=True):
        num = min(num_before, level_logits.shape[1])
        best, index = level_logits.float().topk(num, dim=1)
        wide = index.unsqueeze(2).expand(-1, -1, 4)
        fill = num_before - num
        scores.append(F.pad(best, (0, fill), value=-torch.inf))
        coded.append(F.pad(level_deltas.gather(1, wide).float(), (0, 0, 0, fill)))
        bases.append(F.pad(base[index], (0, 0, 0, fill)))
    score, levels = torch.cat(scores, dim=1), len(scores)
    regions = box_ops.clip(box_ops.decode(torch.cat(coded, dim=1), torch.cat(bases, dim=1), CODING), sizes)
    large = ((regions[..., 2:] - regions[..., :2]) >= MIN_SIZE).all(dim=2)
    valid = large & (score > -torch.inf)
    images = sizes.shape[0]
    keep = nms_mask(
        regions.view(images * levels, num_before, 4), valid.view(images * levels, num_before), NMS_IOU
    ).view(images, -1)
    left, index = torch.where(keep, score, -torch.inf).topk(min(num_after, score.shape[1]), dim=1)
    return regions.gather(1, index.unsqueeze(2).expand(-1, -1, 4)), left > -torch.inf
