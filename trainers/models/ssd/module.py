"""SSD300, the light-weight detector of MLPerf Training v0.5: loss, detections and schedule.

W. Liu et al. 2016 (arXiv:1512.02325). The path from uint8 images to the loss has fixed shapes and does not need the
host, so it is compiled as one function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from conf.schema import ConfigError
from trainers.data.detection import data as detection
from trainers.data.detection.synthetic import SyntheticDetection
from trainers.models.schedule import Schedule, check_below_one, is_number
from trainers.models.ssd.colour_jitter import NUM_DRAWS
from trainers.models.ssd.default_boxes import CODING, IMAGE_SIZE, SsdView, match
from trainers.models.ssd.network import BACKBONES, Ssd300, load_pretrained
from trainers.ops.boxes import decode, encode, to_image
from trainers.ops.compiling import compiled
from trainers.ops.nms import nms_of_classes
from trainers.workload import Batch, DetectionData, TrialModule, Workload

NEGATIVES_PER_MATCH = 3
MIN_SCORE, NMS_IOU, MAX_DETECTIONS = 0.05, 0.5, 200
# Best (box, class) pairs of an image that enter non-maximum suppression. The reference takes 200 of each class.
NUM_CANDIDATES = 1024


def multibox_loss(
    deltas: Sequence[torch.Tensor],
    logits: Sequence[torch.Tensor],
    defaults: torch.Tensor,
    boxes: torch.Tensor,
    labels: torch.Tensor,
) -> torch.Tensor:
    """Return the loss of each image, float32 [n]: box and class errors over the number of matched default boxes.

    Box errors count for matched default boxes; class errors also count for three times as many unmatched ones, those
    with the largest errors. The loss of an image without objects is 0.

    Args:
        deltas, logits: the network's output in parts along D, of together [n, D, 4] and [n, D, C + 1]
        defaults: float32 [D, 4]
        boxes, labels: [n, D, 4] and [n, D], the object matched with each default box
    """
    matched = labels > 0
    num_matched = matched.sum(dim=1)
    targets, counts = encode(boxes, defaults, CODING), [part.shape[1] for part in deltas]
    off = torch.cat([box_errors(*pair) for pair in zip(deltas, targets.split(counts, 1), strict=True)], dim=1)
    errors = torch.cat([class_errors(*pair) for pair in zip(logits, labels.split(counts, 1), strict=True)], dim=1)
    counted = matched + hard_negatives(errors.detach(), matched)
    total = (off * matched + errors * counted).sum(dim=1)
    return torch.where(num_matched > 0, total / num_matched.clamp(min=1), 0.0)


def box_errors(deltas: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.smooth_l1_loss(deltas.float(), targets, reduction="none").sum(dim=2)


def class_errors(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)


def hard_negatives(errors: torch.Tensor, matched: torch.Tensor) -> torch.Tensor:
    """Return the weight of each default box as a negative, float32 [n, D]: 1 or 0, or a share for ties at the end.

    A threshold for each image, the error of the last negative that counts, avoids the second sort that ranks need.

    Args:
        errors: float32 [n, D]
        matched: bool [n, D], True for default boxes that are not negatives
    """
    errors = torch.where(matched, 0.0, errors)
    num = (NEGATIVES_PER_MATCH * matched.sum(dim=1, keepdim=True)).clamp(1, errors.shape[1])
    last = errors.sort(dim=1, descending=True).values.gather(1, num - 1)
    harder, tied = errors > last, (errors == last) & ~matched
    share = (num - harder.sum(dim=1, keepdim=True)) / tied.sum(dim=1, keepdim=True).clamp(min=1)
    return harder + tied * share.clamp(max=1)


def forward_loss(
    net: Ssd300,
    images: torch.Tensor,
    draws: torch.Tensor,
    boxes: torch.Tensor,
    labels: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    """Return the weighted sum of losses for images uint8 [n, 3, 300, 300]; `draws` [4, n] change their colours."""
    deltas, logits = net.by_map(images, draws)
    matched_boxes, matched_labels = match(net.default_boxes, boxes, labels)
    return (multibox_loss(deltas, logits, net.default_boxes, matched_boxes, matched_labels) * weights).sum()


def candidates(net: Ssd300, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the best (box, class) pairs by descending score: boxes [n, K, 4] in pixels, scores and labels [n, K]."""
    deltas, logits = net(images)
    scores = logits.float().softmax(dim=2)[:, :, 1:]
    num_classes = scores.shape[2]
    scores, index = scores.flatten(1).topk(min(NUM_CANDIDATES, scores.shape[1] * num_classes), dim=1)
    box = (index // num_classes)[..., None].expand(-1, -1, 4)
    boxes = decode(deltas.gather(1, box), net.default_boxes.expand(images.shape[0], -1, -1).gather(1, box), CODING)
    return boxes.clamp(0, IMAGE_SIZE), scores, index % num_classes + 1


def select(boxes: torch.Tensor, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return detections of each image, float32 [n, 200, 6]: box, score (0 for an empty slot) and label."""
    keep = nms_of_classes(boxes, labels, scores > MIN_SCORE, NMS_IOU)
    scores, index = torch.where(keep, scores, 0.0).topk(min(MAX_DETECTIONS, scores.shape[1]), dim=1)
    boxes = boxes.gather(1, index[..., None].expand(-1, -1, 4))
    return torch.cat((boxes, scores[..., None], labels.gather(1, index)[..., None]), dim=2)


class Predictor(nn.Module):
    """Maps uint8 [n, 3, 300, 300] to detections float32 [n, 200, 6]: box in pixels, score (0: empty slot), label."""

    def __init__(self, net: Ssd300) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return select(*candidates(self.net, images))


class Ssd(TrialModule):
    """Trains SSD300 by SGD with momentum and a warm-up in steps; the rate falls to a tenth at each of `decay_epochs`.

    Raises ConfigError for an invalid option, and for a file of weights that does not fit.
    """

    same_kernels = True

    def __init__(
        self,
        data: DetectionData,
        learning_rate: float,
        weight_decay: float,
        epochs: int,
        decay_epochs: list[float],
        warmup_steps: int = 0,
        momentum: float = 0.9,
        backbone: str = "resnet34",
        width: float = 1.0,
        pretrained: str | None = None,
    ) -> None:
        super().__init__()
        check_options(momentum, backbone, width, pretrained)
        self.schedule = Schedule(learning_rate, epochs, list(decay_epochs), warmup_steps=warmup_steps)
        self.max_epochs = epochs
        self.weight_decay, self.momentum = weight_decay, momentum
        self.view = SsdView()
        net = Ssd300(data.num_classes, backbone, width)
        if pretrained is not None:
            load_pretrained(net.backbone, pretrained)
        # cuDNN's tensor-core kernels need this layout. DDP lays out its buckets later.
        self.net: Ssd300 = net.to(memory_format=torch.channels_last)
        self._forward_loss, self._candidates = forward_loss, candidates
        self._detections: list[tuple[torch.Tensor, torch.Tensor]] = []  # on the device, one item for each step
        self._evaluator = data.evaluator(("bbox",))

    def compile_hot_path(self) -> None:
        """Compile the paths from images to loss and to candidates; non-maximum suppression has its own kernels."""
        self._forward_loss = compiled(forward_loss, self.device, cuda_graphs=not self.captured)
        self._candidates = compiled(candidates, self.device)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        rate = self.schedule.learning_rate
        return torch.optim.SGD(
            self.parameters(), lr=rate, momentum=self.momentum, weight_decay=self.weight_decay, fused=True
        )

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self.schedule.apply(self.trainer, batch_idx)

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        # Draw outside of the compiled function, from the generator that the trainer seeds and restores after warm-up.
        draws = torch.rand(NUM_DRAWS, len(batch["images"]), device=batch["images"].device)
        return self._forward_loss(self.net, batch["images"], draws, batch["boxes"], batch["labels"], batch["weights"])

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        detections = select(*self._candidates(self.net, batch["images"]))
        detections[..., :4] = to_image(detections[..., :4], batch["crops"], batch["sizes"])
        self._detections.append((detections, batch["image_index"]))

    def metrics(self) -> dict[str, float]:
        """Return COCO's mean average precision over all images. A collective call."""
        assert self._evaluator is not None, "these data have nothing to evaluate"
        steps, self._detections = self._detections, []
        if steps:
            detections, image = (torch.cat(column).cpu().numpy() for column in zip(*steps, strict=True))
            kept = (detections[..., 4] > 0) & (image >= 0)[:, None]
            index = np.broadcast_to(image[:, None], kept.shape)[kept]
            detections = detections[kept]
            self._evaluator.add(index, detections[:, :4], detections[:, 4], detections[:, 5].astype(np.int64))
        return self._evaluator.compute()

    def predictor(self, batch: Batch) -> tuple[nn.Module, torch.Tensor]:
        return Predictor(self.net), batch["images"]


def check_options(momentum: Any, backbone: Any, width: Any, pretrained: Any) -> None:
    """Raise ConfigError for an invalid option."""
    check_below_one(momentum=momentum)
    if backbone not in BACKBONES:
        raise ConfigError(f"model.hparams.backbone={backbone}: no such network. Allowed: {', '.join(BACKBONES)}")
    if not is_number(width) or not 0 < width <= 4:
        raise ConfigError(f"model.hparams.width={width}: must be above 0, up to 4")
    if pretrained is not None and width != 1:
        raise ConfigError(
            f"model.hparams.pretrained={pretrained}: its weights fit model.hparams.width=1, not {width}. Next: give"
            " width=1, or pretrained=null"
        )


WORKLOAD = Workload(
    module=Ssd,
    data={"coco": detection.coco, "shapes": detection.shapes, "synthetic": SyntheticDetection},
    unit="images",
)
