"""The second stage of Mask R-CNN without its layers: samples regions, and computes losses and final detections.

K. He et al. 2017 (arXiv:1703.06870), with torchvision's constants. It processes all images of a batch at once, in fixed
shapes, and the host never waits for the device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F

from trainers.models.maskrcnn.sampling import IGNORED, NEGATIVE, POSITIVE, sample
from trainers.ops import boxes as box_ops
from trainers.ops.nms import nms_of_classes

POSITIVE_IOU = 0.5
POSITIVE_SHARE = 0.25
CODING = (10.0, 5.0)
BETA = 1 / 9  # where smooth L1 changes from quadratic to linear
MIN_SCORE, NMS_IOU, MAX_DETECTIONS = 0.05, 0.5, 100
NUM_CANDIDATES = 2048  # best (region, class) pairs of an image that enter non-maximum suppression


class Regions(NamedTuple):
    """Regions for training the second stage, positive ones first; n images with R slots each."""

    rois: torch.Tensor  # float32 [n, R, 4]
    classes: torch.Tensor  # int64 [n, R], 0 = background
    valid: torch.Tensor  # bool [n, R], False for an empty slot
    matched: torch.Tensor  # int64 [n, R], the object with the largest overlap


@torch.no_grad()
def sample_regions(
    proposals: torch.Tensor,
    valid: torch.Tensor,
    boxes: torch.Tensor,
    labels: torch.Tensor,
    use: torch.Tensor,
    num: int,
) -> Regions:
    """Draw `num` regions an image, up to a quarter positive, from its proposals [n, K, 4] and objects [n, G, 4]."""
    candidates = torch.cat((proposals, boxes), dim=1)
    valid = torch.cat((valid, labels > 0), dim=1) & use[:, None]
    iou = torch.where((labels > 0)[:, None], box_ops.pairwise_iou(candidates, boxes), -1.0)
    best, matched = iou.max(dim=2)
    state = torch.where(valid, torch.where(best >= POSITIVE_IOU, POSITIVE, NEGATIVE), IGNORED)
    drawn = sample(state, num, POSITIVE_SHARE)
    matched = matched.gather(1, drawn.chosen)
    rois = candidates.gather(1, drawn.chosen.unsqueeze(2).expand(-1, -1, 4))
    classes = torch.where(drawn.positive, labels.gather(1, matched), 0)
    return Regions(rois, classes, drawn.valid, matched)


def box_losses(
    logits: torch.Tensor, deltas: torch.Tensor, regions: Regions, boxes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return class and box loss, means over the regions, for logits [n * R, C + 1] and deltas [n * R, (C + 1) * 4]."""
    classes, valid = regions.classes.flatten(), regions.valid.flatten()
    num = valid.sum().clamp(min=1)
    classification = F.cross_entropy(logits.float(), classes, reduction="none")
    class_deltas = deltas.view(len(classes), -1, 4).gather(1, classes[:, None, None].expand(-1, 1, 4))[:, 0]
    targets = boxes.gather(1, regions.matched.unsqueeze(2).expand(-1, -1, 4))
    targets = box_ops.encode(targets, regions.rois, CODING).flatten(0, 1)
    positive = classes > 0
    targets = torch.where(positive[:, None], targets, 0.0)  # Targets of other regions may be infinite.
    off = F.smooth_l1_loss(class_deltas.float(), targets, beta=BETA, reduction="none").sum(dim=1)
    return (classification * valid).sum() / num, (off * positive).sum() / num


def mask_loss(logits: torch.Tensor, classes: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy over the pixels of the positive regions.

    Args:
        logits: [P, M, M], of the region's class
        classes: int64 [P], 0 for regions that are not positive and do not count
        targets: float32 [P, M, M], share of the object in each pixel
    """
    losses = F.binary_cross_entropy_with_logits(logits.float(), targets, reduction="none").mean(dim=(1, 2))
    positive = classes > 0
    return (losses * positive).sum() / positive.sum().clamp(min=1)


class Detections(NamedTuple):
    """Detections of each image by descending score; n images with D slots each."""

    boxes: torch.Tensor  # float32 [n, D, 4], canvas pixels
    scores: torch.Tensor  # float32 [n, D], 0 for an empty slot
    labels: torch.Tensor  # int64 [n, D], 1 to C


def detect(
    logits: torch.Tensor, deltas: torch.Tensor, rois: torch.Tensor, valid: torch.Tensor, sizes: torch.Tensor
) -> Detections:
    """Return the detections for logits [n, R, C + 1] and deltas [n, R, (C + 1) * 4] of rois [n, R, 4]."""
    images, regions, classes = logits.shape
    scores = logits.float().softmax(dim=2)[:, :, 1:]
    scores = torch.where(valid[:, :, None] & (scores > MIN_SCORE), scores, 0.0).flatten(1)
    best, index = scores.topk(min(NUM_CANDIDATES, scores.shape[1]), dim=1)
    region, label = index // (classes - 1), index % (classes - 1) + 1
    coded = deltas.reshape(images, regions * classes, 4)  # The compiler may pad rows, so a view may not exist.
    coded = coded.gather(1, (region * classes + label).unsqueeze(2).expand(-1, -1, 4))
    base = rois.gather(1, region.unsqueeze(2).expand(-1, -1, 4))
    boxes = box_ops.clip(box_ops.decode(coded, base, CODING), sizes)
    keep = nms_of_classes(boxes, label, best > 0, NMS_IOU)
    top, index = torch.where(keep, best, 0.0).topk(min(MAX_DETECTIONS, best.shape[1]), dim=1)
    return Detections(boxes.gather(1, index.unsqueeze(2).expand(-1, -1, 4)), top, label.gather(1, index))
