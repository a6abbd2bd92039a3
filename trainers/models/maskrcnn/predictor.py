"""Mask R-CNN's prediction as a network from one tensor to one tensor, so that it can be exported."""

from __future__ import annotations

import torch
from torch import nn
from torchvision.models.detection import MaskRCNN

from trainers.models.maskrcnn import roi_heads, rpn
from trainers.models.maskrcnn.network import BOX_BINS, MASK_BINS, box_head, dense, mask_head, pool


class Predictor(nn.Module):
    """Maps uint8 [n, 3, height, width] to detections float32 [n, 100, 790] from the best `num_proposals` regions.

    A detection is its box in pixels of the images, its score (0 for an empty slot), its label, and 28x28 probabilities,
    row by row, that a point of the box belongs to the object. Images fill height and width.
    """

    def __init__(self, net: MaskRCNN, num_proposals: int) -> None:
        super().__init__()
        self.net, self.num_proposals = net, num_proposals

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        number, canvas = images.shape[0], (images.shape[2], images.shape[3])
        sizes = torch.tensor(canvas, dtype=torch.float32, device=images.device).expand(number, 2)
        features, logits, deltas = dense(self.net, images, sizes)
        shapes = [(feature.shape[2], feature.shape[3]) for feature in features]
        level_anchors = rpn.anchors(canvas, shapes, images.device)
        rois, valid = rpn.propose(logits, deltas, level_anchors, sizes, self.num_proposals, self.num_proposals)
        classes, coded = box_head(self.net, pool(features, rois, valid, BOX_BINS))
        shape = (number, self.num_proposals, -1)
        boxes, scores, labels = roi_heads.detect(classes.view(shape), coded.view(shape), rois, valid, sizes)
        pooled = pool(features, boxes, scores > 0, MASK_BINS)
        masks = mask_head(self.net, pooled, labels.flatten()).sigmoid().view(number, boxes.shape[1], -1)
        return torch.cat((boxes, scores[..., None], labels[..., None], masks), dim=2)
