"""Mask R-CNN with a feature pyramid (K. He et al. 2017, arXiv:1703.06870).

The layers are torchvision's, so that its weights fit. Between the layers torchvision loops over images, and the GPU
waits. Here that part processes all images of a batch at once, in fixed shapes, and the host never waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torchvision.models.detection import MaskRCNN

from conf.schema import ConfigError
from trainers.data.detection import data as detection
from trainers.data.detection.synthetic import SyntheticDetection
from trainers.data.detection.view import ShortEdge
from trainers.models.maskrcnn import roi_heads, rpn
from trainers.models.maskrcnn.masks import mask_targets, paste, rasterise
from trainers.models.maskrcnn.network import (
    BOX_BINS,
    MASK_BINS,
    MASK_SIZE,
    box_head,
    build_network,
    dense,
    mask_head,
    pool,
)
from trainers.models.maskrcnn.predictor import Predictor
from trainers.models.schedule import Schedule, check_below_one
from trainers.ops.boxes import to_image
from trainers.ops.compiling import compiled, raise_recompile_limit
from trainers.workload import Batch, DetectionData, TrialModule, Workload

OUTLINE_GRID = 56  # cells a side of the grid on which an object's outline is drawn; regions crop their masks from it


def rpn_losses(
    logits: list[torch.Tensor],
    deltas: list[torch.Tensor],
    all_anchors: torch.Tensor,
    boxes: torch.Tensor,
    labels: torch.Tensor,
    use: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        anchor_labels, matched = rpn.targets(all_anchors, boxes, labels > 0, use)
        drawn = rpn.draw(anchor_labels)
    return rpn.losses(torch.cat(logits, dim=1), torch.cat(deltas, dim=1), all_anchors, boxes, matched, drawn)


def box_branch(
    network: MaskRCNN, pooled: torch.Tensor, regions: roi_heads.Regions, boxes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return roi_heads.box_losses(*box_head(network, pooled), regions, boxes)


def mask_branch(network: MaskRCNN, pooled: torch.Tensor, classes: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return roi_heads.mask_loss(mask_head(network, pooled, classes), classes, targets)


def mask_probabilities(network: MaskRCNN, pooled: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the masks of each region's class, float16 [P, 28, 28]."""
    return mask_head(network, pooled, labels).float().sigmoid().half()


class MaskRcnn(TrialModule):
    """Trains Mask R-CNN by SGD with momentum and a warm-up in steps; the rate falls to a tenth at each `decay_epochs`.

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
        warmup_steps: int,
        min_size: int = 800,
        max_size: int = 1333,
        num_proposals: int = 2000,
        num_regions: int = 512,
        momentum: float = 0.9,
        backbone: str = "resnet50",
        channels: int = 256,
        pretrained: str | None = None,
    ) -> None:
        super().__init__()
        check_sizes(min_size, max_size, num_proposals, num_regions, channels)
        check_below_one(momentum=momentum)
        self.schedule = Schedule(learning_rate, epochs, list(decay_epochs), warmup_steps=warmup_steps)
        self.max_epochs = epochs
        self.weight_decay, self.momentum = weight_decay, momentum
        self.num_proposals, self.num_regions = num_proposals, num_regions
        self.view = ShortEdge(min_size, max_size, outlines=True)
        self.net = build_network(data.num_classes, backbone, channels, pretrained)
        self._dense, self._rpn_losses, self._box_head = dense, rpn_losses, box_head
        self._dense_of_evaluation = dense
        self._box_branch, self._mask_branch, self._mask_probabilities = box_branch, mask_branch, mask_probabilities
        self._begin_step: Callable[[], None] = lambda: None
        self._anchors: dict[tuple[int, int], list[torch.Tensor]] = {}  # by canvas
        self._detections: list[dict[str, torch.Tensor]] = []  # on the device, one item for each step
        self._evaluator = data.evaluator(("bbox", "segm"))

    def compile_hot_path(self) -> None:
        """Compile the arithmetic. Sampling and proposals are a few small kernels and are not compiled."""
        raise_recompile_limit(32)  # Every canvas has its own graphs, for training and for evaluation.
        self._rpn_losses = compiled(rpn_losses, self.device, cuda_graphs=False)
        # These become CUDA graphs: with a small batch, launching their kernels one by one takes longer than they run.
        for name in ("_dense_of_evaluation", "_box_head", "_mask_probabilities"):
            setattr(self, name, compiled(getattr(self, name), self.device))
        for name in ("_dense", "_box_branch", "_mask_branch"):
            setattr(self, name, compiled(getattr(self, name), self.device, cuda_graphs=not self.captured))
        if self.device.type == "cuda":  # Elsewhere there are no graphs, and it would load the compiler for seconds.
            self._begin_step = torch.compiler.cudagraph_mark_step_begin

    def configure_optimizers(self) -> torch.optim.Optimizer:
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        rate = self.schedule.learning_rate
        return torch.optim.SGD(trained, lr=rate, momentum=self.momentum, weight_decay=self.weight_decay, fused=True)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self.schedule.apply(self.trainer, batch_idx)

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        self._begin_step()  # The parts' outputs live until the next step begins.
        return sum(self.losses(batch).values()) * batch["weights"].sum()  # type: ignore[no-any-return]

    def losses(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the five losses, each a mean over the samples drawn from this process's images."""
        boxes, labels, use = batch["boxes"], batch["labels"], batch["weights"] > 0
        features, logits, deltas = self._dense(self.net, batch["images"], batch["sizes"])
        level_anchors = self.anchors(batch["images"], features)
        objectness, rpn_box = self._rpn_losses(logits, deltas, torch.cat(level_anchors), boxes, labels, use)
        proposals, valid = rpn.propose(
            logits, deltas, level_anchors, batch["sizes"], self.num_proposals, self.num_proposals
        )
        regions = roi_heads.sample_regions(proposals, valid, boxes, labels, use, self.num_regions)
        pooled = pool(features, regions.rois, regions.valid, BOX_BINS)
        classification, box = self._box_branch(self.net, pooled, regions, boxes)
        return {
            "objectness": objectness,
            "rpn_box": rpn_box,
            "classification": classification,
            "box": box,
            "mask": self.mask_loss(batch, features, regions),
        }

    def mask_loss(self, batch: Batch, features: list[torch.Tensor], regions: roi_heads.Regions) -> torch.Tensor:
        num = int(self.num_regions * roi_heads.POSITIVE_SHARE)  # the positive ones come first
        rois, classes, matched = regions.rois[:, :num], regions.classes[:, :num], regions.matched[:, :num]
        pooled = pool(features, rois, classes > 0, MASK_BINS)
        boxes = batch["boxes"].flatten(0, 1)
        instance = matched + torch.arange(len(matched), device=matched.device)[:, None] * batch["boxes"].shape[1]
        grids = rasterise(batch["edges"], batch["owner"], boxes, OUTLINE_GRID)
        targets = mask_targets(grids, boxes, rois.flatten(0, 1), instance.flatten(), MASK_SIZE)
        return self._mask_branch(self.net, pooled, classes.flatten(), targets)

    def anchors(self, images: torch.Tensor, features: list[torch.Tensor]) -> list[torch.Tensor]:
        canvas = (images.shape[2], images.shape[3])
        if canvas not in self._anchors:
            shapes = [(feature.shape[2], feature.shape[3]) for feature in features]
            self._anchors[canvas] = rpn.anchors(canvas, shapes, images.device)
        return self._anchors[canvas]

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._begin_step()
        sizes, use = batch["sizes"], batch["weights"] > 0
        features, logits, deltas = self._dense_of_evaluation(self.net, batch["images"], sizes)
        level_anchors = self.anchors(batch["images"], features)
        num = self.num_proposals // 2
        proposals, valid = rpn.propose(logits, deltas, level_anchors, sizes, num, num)
        valid &= use[:, None]
        class_logits, class_deltas = self._box_head(self.net, pool(features, proposals, valid, BOX_BINS))
        shape = (*proposals.shape[:2], -1)
        detections = roi_heads.detect(class_logits.view(shape), class_deltas.view(shape), proposals, valid, sizes)
        pooled = pool(features, detections.boxes, detections.scores > 0, MASK_BINS)
        masks = self._mask_probabilities(self.net, pooled, detections.labels.flatten())
        index = batch["image_index"][:, None].expand_as(detections.labels)
        self._detections.append(
            {
                "image": torch.where(detections.scores > 0, index, -1).flatten(),
                "boxes": to_image(detections.boxes, batch["crops"], batch["sizes"]).flatten(0, 1),
                "scores": detections.scores.flatten(),
                "labels": detections.labels.flatten(),
                "masks": masks.clone(),  # The next step overwrites the CUDA graph's memory.
            }
        )

    def metrics(self) -> dict[str, float]:
        """Return COCO's mean average precision of boxes and masks over all images. A collective call."""
        assert self._evaluator is not None, "these data have nothing to evaluate"
        steps = self._detections
        detections = {key: torch.cat([step[key] for step in steps]) for key in (steps[0] if steps else ())}
        self._detections.clear()
        if detections:
            kept = detections["image"] >= 0
            detections = {key: value[kept] for key, value in detections.items()}
            image = detections["image"].cpu().numpy()
            sizes = torch.from_numpy(self._evaluator.index.sizes[image])
            masks = paste(detections["masks"].float(), detections["boxes"], sizes.to(self.device))
            boxes, scores, labels = (detections[key].cpu().numpy() for key in ("boxes", "scores", "labels"))
            self._evaluator.add(image, boxes, scores, labels, masks)
        return self._evaluator.compute()

    def predictor(self, batch: Batch) -> tuple[nn.Module, torch.Tensor]:
        return Predictor(self.net, self.num_proposals // 2), batch["images"]


def check_sizes(min_size: Any, max_size: Any, num_proposals: Any, num_regions: Any, channels: Any) -> None:
    for name, value, least in (
        ("min_size", min_size, 32),
        ("max_size", max_size, 32),
        ("num_proposals", num_proposals, 2),
        ("num_regions", num_regions, 4),
        ("channels", channels, 8),
    ):
        if not isinstance(value, int) or value < least:
            raise ConfigError(f"model.hparams.{name}={value}: must be a whole number, {least} or more")
    if max_size < min_size:
        raise ConfigError(f"model.hparams.max_size={max_size}: must be min_size={min_size} or more")


WORKLOAD = Workload(
    module=MaskRcnn,
    data={"coco": detection.coco, "shapes": detection.shapes, "synthetic": SyntheticDetection},
    unit="images",
)
