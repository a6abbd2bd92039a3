"""Mask R-CNN with a feature pyramid (K. He et al. 2017, arXiv:1703.06870).

The layers are torchvision's, so that its weights fit. What lies between them, where torchvision's loops over images
keep the GPU waiting, is ours: all images of a batch at once, in fixed shapes, and the host never waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.resnet import resnet18, resnet34, resnet50
from torchvision.ops.misc import FrozenBatchNorm2d

from conf.schema import ConfigError
from trainers import roi_heads, rpn
from trainers.data import detection
from trainers.data.synthetic_detection import SyntheticDetection
from trainers.data.view import ShortEdge
from trainers.masks import mask_targets, paste, rasterise
from trainers.pretrained import load_pretrained
from trainers.roi_align import roi_align
from trainers.schedule import StepSchedule
from trainers.stem import Stem
from trainers.workload import Batch, TrialModule, Workload

BACKBONES: dict[str, Callable[..., nn.Module]] = {"resnet18": resnet18, "resnet34": resnet34, "resnet50": resnet50}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's images, as the backbones' weights expect
BOX_BINS, MASK_BINS, MASK_SIZE = 7, 14, 28
OUTLINE_GRID = 56  # cells a side that an object's outline is drawn on before regions cut their masks out of it
TRAINED_STAGES = ("layer2", "layer3", "layer4")  # of a pretrained backbone; what is before them stays as it is


def build_network(num_classes: int, backbone: str, channels: int, pretrained: str | None) -> MaskRCNN:
    """torchvision's MaskRCNN for classes 1 to `num_classes`; its own forward is not used.

    With a pretrained backbone, batch normalisation and the first two stages are frozen, as the published recipes have
    it; without, everything is trained. `channels` is the width of the pyramid and of all that is behind it. Raises
    ConfigError for a backbone that is not there.
    """
    if backbone not in BACKBONES:
        raise ConfigError(f"model.hparams.backbone={backbone}: allowed: {', '.join(BACKBONES)}")
    body: Any = BACKBONES[backbone](weights=None, norm_layer=FrozenBatchNorm2d if pretrained else nn.BatchNorm2d)
    body.conv1 = Stem()
    if pretrained:
        plain = BACKBONES[backbone](weights=None)
        load_pretrained(plain, pretrained, head="fc")
        body.load_state_dict(plain.state_dict())
    for name, parameter in body.named_parameters():
        if pretrained and not name.startswith(TRAINED_STAGES):
            parameter.requires_grad_(False)
    widths = [body.inplanes // 8 << stage for stage in range(4)]
    stages = {f"layer{stage + 1}": str(stage) for stage in range(4)}
    network = MaskRCNN(
        BackboneWithFPN(body, stages, widths, channels),
        box_head=TwoMLPHead(channels * BOX_BINS**2, 4 * channels),
        box_predictor=FastRCNNPredictor(4 * channels, num_classes + 1),
        mask_head=MaskRCNNHeads(channels, (channels,) * 4, dilation=1),
        mask_predictor=MaskRCNNPredictor(channels, channels, num_classes + 1),
    )
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def dense(
    network: MaskRCNN, images: torch.Tensor, sizes: torch.Tensor
) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    """What is computed everywhere, of images uint8 [n, 3, H, W] with parts of `sizes` [n, 2].

    Returns one a level: features [n, C, h, w], objectness logits [n, A] and box deltas [n, A, 4] of its anchors.
    """
    mean, std = (images.new_tensor(values, dtype=torch.float32).view(3, 1, 1) for values in (MEAN, STD))
    scaled = (images.float() * (1 / 255) - mean) / std
    rows, columns = (torch.arange(length, device=images.device) for length in images.shape[2:])
    inside = (rows[:, None] < sizes[:, None, None, :1]) & (columns < sizes[:, None, None, 1:])
    features = list(network.backbone(torch.where(inside, scaled, 0.0)).values())
    logits, deltas = network.rpn.head(features)
    return (
        features,
        [one.permute(0, 2, 3, 1).flatten(1) for one in logits],
        [one.permute(0, 2, 3, 1).reshape(len(one), -1, 4) for one in deltas],
    )


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


def box_head(network: MaskRCNN, pooled: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Class logits [R, C + 1] and deltas [R, (C + 1) * 4] of pooled features [R, channels, 7, 7]."""
    logits, deltas = network.roi_heads.box_predictor(network.roi_heads.box_head(pooled))
    return logits, deltas


def mask_head(network: MaskRCNN, pooled: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Mask logits [P, 28, 28], each of its region's own class int64 [P], of pooled features [P, channels, 14, 14].

    The last convolution is 1x1, so one class is one product of a pixel's channels with that class's weights: the masks
    of all other classes, which nobody reads, need not be computed.
    """
    predictor = network.roi_heads.mask_predictor
    features = predictor.relu(predictor.conv5_mask(network.roi_heads.mask_head(pooled)))
    weights = predictor.mask_fcn_logits.weight[classes, :, 0]  # [P, channels, 1]
    pixels = features.permute(0, 2, 3, 1).flatten(1, 2)  # [P, 784, channels]
    logits = pixels @ weights + predictor.mask_fcn_logits.bias[classes, None, None]
    return logits.view(-1, MASK_SIZE, MASK_SIZE)


def box_branch(
    network: MaskRCNN, pooled: torch.Tensor, regions: roi_heads.Regions, boxes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return roi_heads.box_losses(*box_head(network, pooled), regions, boxes)


def mask_branch(network: MaskRCNN, pooled: torch.Tensor, classes: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return roi_heads.mask_loss(mask_head(network, pooled, classes), classes, wanted)


def mask_probabilities(network: MaskRCNN, pooled: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """float16 [P, 28, 28], of each region's own class."""
    return mask_head(network, pooled, labels).float().sigmoid().half()


class MaskRcnn(TrialModule):
    """SGD with momentum, warm-up by steps, the rate divided by ten after each of `decay_epochs`.

    Raises ConfigError for options that cannot be, and for a file of weights that does not fit.
    """

    def __init__(
        self,
        data: detection.DetectionData | SyntheticDetection,
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
        self.schedule = StepSchedule(learning_rate, epochs, list(decay_epochs), warmup_steps)
        self.max_epochs = epochs
        self.weight_decay, self.momentum = weight_decay, momentum
        self.num_proposals, self.num_regions = num_proposals, num_regions
        self.data = data
        data.view, data.outlines = ShortEdge(min_size, max_size), True
        self.net = build_network(data.num_classes, backbone, channels, pretrained)
        self._dense, self._rpn_losses, self._box_head = dense, rpn_losses, box_head
        self._box_branch, self._mask_branch, self._mask_probabilities = box_branch, mask_branch, mask_probabilities
        self._anchors: dict[tuple[int, int], list[torch.Tensor]] = {}  # by canvas
        self._found: list[dict[str, torch.Tensor]] = []  # detections on the device, a step of evaluation each
        self._evaluator: Any = None

    def compile_hot_path(self) -> None:
        """Compile what has arithmetic; sampling and proposals are few small kernels and stay as they are."""
        torch._dynamo.config.recompile_limit = 32  # every canvas, in training and in evaluation, is a graph of its own
        for name in ("_dense", "_rpn_losses", "_box_head", "_box_branch", "_mask_branch", "_mask_probabilities"):
            setattr(self, name, torch.compile(getattr(self, name), dynamic=False))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        rate = self.schedule.learning_rate
        return torch.optim.SGD(trained, lr=rate, momentum=self.momentum, weight_decay=self.weight_decay, fused=True)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self.schedule.apply(self.trainer, batch_idx)

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        return sum(self.losses(batch).values()) * batch["weights"].sum()  # type: ignore[no-any-return]

    def losses(self, batch: Batch) -> dict[str, torch.Tensor]:
        """The five losses, each a mean over the samples drawn from this process's images."""
        boxes, labels, use = batch["boxes"], batch["labels"], batch["weights"] > 0
        features, logits, deltas = self._dense(self.net, batch["images"], batch["sizes"])
        level_anchors = self.anchors(batch["images"], features)
        objectness, rpn_box = self._rpn_losses(logits, deltas, torch.cat(level_anchors), boxes, labels, use)
        proposals, valid = rpn.propose(
            logits, deltas, level_anchors, batch["sizes"], self.num_proposals, self.num_proposals
        )
        regions = roi_heads.sample_regions(proposals, valid, boxes, labels, use, self.num_regions)
        pooled = self.pool(features, regions.rois, regions.valid, BOX_BINS)
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
        pooled = self.pool(features, rois, classes > 0, MASK_BINS)
        boxes = batch["boxes"].flatten(0, 1)
        instance = matched + torch.arange(len(matched), device=matched.device)[:, None] * batch["boxes"].shape[1]
        grids = rasterise(batch["edges"], batch["owner"], boxes, OUTLINE_GRID)
        wanted = mask_targets(grids, boxes, rois.flatten(0, 1), instance.flatten(), MASK_SIZE)
        return self._mask_branch(self.net, pooled, classes.flatten(), wanted)

    def pool(self, features: list[torch.Tensor], rois: torch.Tensor, valid: torch.Tensor, bins: int) -> torch.Tensor:
        """Features of rois [n, R, 4] from all levels but the last, which is there for anchors only."""
        image = torch.arange(len(rois), device=rois.device).repeat_interleave(rois.shape[1])
        return roi_align(features[:-1], rois.flatten(0, 1), image, valid.flatten(), bins, rpn.FIRST_STRIDE)

    def anchors(self, images: torch.Tensor, features: list[torch.Tensor]) -> list[torch.Tensor]:
        canvas = (images.shape[2], images.shape[3])
        if canvas not in self._anchors:
            shapes = [(feature.shape[2], feature.shape[3]) for feature in features]
            self._anchors[canvas] = rpn.anchors(canvas, shapes, images.device)
        return self._anchors[canvas]

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        sizes, use = batch["sizes"], batch["weights"] > 0
        features, logits, deltas = self._dense(self.net, batch["images"], sizes)
        level_anchors = self.anchors(batch["images"], features)
        num = self.num_proposals // 2
        proposals, valid = rpn.propose(logits, deltas, level_anchors, sizes, num, num)
        valid &= use[:, None]
        class_logits, class_deltas = self._box_head(self.net, self.pool(features, proposals, valid, BOX_BINS))
        shape = (*proposals.shape[:2], -1)
        found = roi_heads.detect(class_logits.view(shape), class_deltas.view(shape), proposals, valid, sizes)
        pooled = self.pool(features, found.boxes, found.scores > 0, MASK_BINS)
        masks = self._mask_probabilities(self.net, pooled, found.labels.flatten())
        index = batch["image_index"][:, None].expand_as(found.labels)
        self._found.append(
            {
                "image": torch.where(found.scores > 0, index, -1).flatten(),
                "boxes": to_image(found.boxes, batch).flatten(0, 1),
                "scores": found.scores.flatten(),
                "labels": found.labels.flatten(),
                "masks": masks,
            }
        )

    def metrics(self) -> dict[str, float]:
        """COCO's mean average precision of boxes and masks over all images; a collective call."""
        if self._evaluator is None:
            self._evaluator = self.data.evaluator(("bbox", "segm"))  # type: ignore[union-attr]
        found = {key: torch.cat([step[key] for step in self._found]) for key in (self._found[0] if self._found else ())}
        self._found.clear()
        if found:
            kept = found["image"] >= 0
            found = {key: value[kept] for key, value in found.items()}
            image = found["image"].cpu().numpy()
            sizes = torch.from_numpy(self.data.val.sizes[image])  # type: ignore[union-attr]
            masks = paste(found["masks"].float(), found["boxes"], sizes.to(self.device))
            boxes, scores, labels = (found[key].cpu().numpy() for key in ("boxes", "scores", "labels"))
            self._evaluator.add(image, boxes, scores, labels, masks)
        metrics: dict[str, float] = self._evaluator.compute()
        return metrics


def to_image(boxes: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Boxes [n, K, 4] from canvas pixels to pixels of the image, where nothing is flipped."""
    crops, sizes = batch["crops"], batch["sizes"]
    scale = (crops[:, 2:] - crops[:, :2]) / sizes.flip(1)
    return boxes * scale.repeat(1, 2)[:, None] + crops[:, :2].repeat(1, 2)[:, None]


def check_sizes(min_size: Any, max_size: Any, num_proposals: Any, num_regions: Any, channels: Any) -> None:
    for name, value, least in (
        ("min_size", min_size, 32),
        ("max_size", max_size, 32),
        ("num_proposals", num_proposals, 2),
        ("num_regions", num_regions, 4),
        ("channels", channels, 8),
    ):
        if not isinstance(value, int) or value < least:
            raise ConfigError(f"model.hparams.{name}={value}: must be a whole number of at least {least}")
    if max_size < min_size:
        raise ConfigError(f"model.hparams.max_size={max_size}: must not be below min_size={min_size}")


WORKLOAD = Workload(
    module=MaskRcnn,
    data={"coco": detection.coco, "shapes": detection.shapes, "synthetic": SyntheticDetection},
    unit="images",
)
