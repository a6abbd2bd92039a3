"""Mask R-CNN's layers. They are torchvision's, so that its weights fit, but are called for whole batches."""

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
from trainers.models.maskrcnn.rpn import FIRST_STRIDE
from trainers.models.pretrained import MEAN, STD, load_pretrained
from trainers.ops.roi_align import roi_align
from trainers.ops.stem import NormReluPool, SpaceToDepthConv

BACKBONES: dict[str, Callable[..., nn.Module]] = {"resnet18": resnet18, "resnet34": resnet34, "resnet50": resnet50}
BOX_BINS, MASK_BINS, MASK_SIZE = 7, 14, 28
TRAINED_STAGES = ("layer2", "layer3", "layer4")  # The stages of a pretrained backbone before these are frozen.


def build_network(num_classes: int, backbone: str, channels: int, pretrained: str | None) -> MaskRCNN:
    """Return torchvision's MaskRCNN for classes 1 to `num_classes`; its forward() is not used.

    A pretrained backbone has frozen batch normalisation and frozen first two stages, as in the published recipes;
    without pretraining, everything is trained. `channels` is the width of the pyramid and of all layers after it.
    Raises ConfigError for an unknown backbone.
    """
    if backbone not in BACKBONES:
        raise ConfigError(f"model.hparams.backbone={backbone}: no such network. Allowed: {', '.join(BACKBONES)}")
    body: Any = BACKBONES[backbone](weights=None, norm_layer=FrozenBatchNorm2d if pretrained else nn.BatchNorm2d)
    body.conv1 = SpaceToDepthConv()
    if not pretrained:
        body.bn1, body.relu, body.maxpool = NormReluPool(body.bn1.num_features), nn.Identity(), nn.Identity()
    else:
        plain = BACKBONES[backbone](weights=None)
        load_pretrained(plain, pretrained, head="fc")
        body.load_state_dict(plain.state_dict())
    for name, parameter in body.named_parameters():
        if pretrained and not name.startswith(TRAINED_STAGES):
            parameter.requires_grad_(False)
    widths = [body.inplanes // 8 << stage for stage in range(4)]
    stages = {f"layer{stage + 1}": str(stage) for stage in range(4)}
    network = MaskRCNN(
        Backbone(body, stages, widths, channels),
        box_head=TwoMLPHead(channels * BOX_BINS**2, 4 * channels),
        box_predictor=FastRCNNPredictor(4 * channels, num_classes + 1),
        mask_head=MaskRCNNHeads(channels, (channels,) * 4, dilation=1),
        mask_predictor=MaskRCNNPredictor(channels, channels, num_classes + 1),
    )
    for name, values in (("mean", MEAN), ("std", STD)):  # Buffers are on the device before a step needs them.
        network.register_buffer(name, torch.tensor(values).view(3, 1, 1), persistent=False)
    return network.to(memory_format=torch.channels_last)


class Backbone(BackboneWithFPN):  # type: ignore[misc]  # torchvision has no types
    """torchvision's, except for how a level is doubled for the next finer one: the gradient is a sum, not a scatter."""

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the pyramid's levels by name, the finest first, for images whose sides are multiples of 32."""
        stages: dict[str, torch.Tensor] = self.body(images)
        names, stage = list(stages), list(stages.values())
        inner = self.fpn.get_result_from_inner_blocks(stage[-1], -1)
        levels = [self.fpn.get_result_from_layer_blocks(inner, -1)]
        for index in reversed(range(len(stage) - 1)):
            inner = self.fpn.get_result_from_inner_blocks(stage[index], index) + doubled(inner)
            levels.insert(0, self.fpn.get_result_from_layer_blocks(inner, index))
        levels, names = self.fpn.extra_blocks(levels, stage, names)
        return dict(zip(names, levels, strict=True))


def doubled(maps: torch.Tensor) -> torch.Tensor:
    """Repeat each cell of [n, C, h, w] in two rows and two columns."""
    n, channels, height, width = maps.shape
    repeated = maps[:, :, :, None, :, None].expand(n, channels, height, 2, width, 2)
    return repeated.reshape(n, channels, 2 * height, 2 * width)


def dense(
    network: MaskRCNN, images: torch.Tensor, sizes: torch.Tensor
) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    """Compute backbone, pyramid and proposal head for images uint8 [n, 3, H, W] that fill `sizes` [n, 2].

    Returns, for each level, features [n, C, h, w], and objectness logits [n, A] and box deltas [n, A, 4] of its
    anchors.
    """
    scaled = (images.float() * (1 / 255) - network.mean) / network.std
    rows, columns = (torch.arange(length, device=images.device) for length in images.shape[2:])
    inside = (rows[:, None] < sizes[:, None, None, :1]) & (columns < sizes[:, None, None, 1:])
    features = list(network.backbone(torch.where(inside, scaled, 0.0)).values())
    logits, deltas = network.rpn.head(features)
    return (
        features,
        [level.permute(0, 2, 3, 1).flatten(1) for level in logits],
        [level.permute(0, 2, 3, 1).reshape(level.shape[0], -1, 4) for level in deltas],
    )


def pool(features: list[torch.Tensor], rois: torch.Tensor, valid: torch.Tensor, bins: int) -> torch.Tensor:
    """Return the features of rois [n, R, 4] from all levels except the last, which only has anchors."""
    image = torch.arange(rois.shape[0], device=rois.device).repeat_interleave(rois.shape[1])
    return roi_align(features[:-1], rois.flatten(0, 1), image, valid.flatten(), bins, FIRST_STRIDE)


def box_head(network: MaskRCNN, pooled: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return class logits [R, C + 1] and deltas [R, (C + 1) * 4] for pooled features [R, channels, 7, 7]."""
    logits, deltas = network.roi_heads.box_predictor(network.roi_heads.box_head(pooled))
    return logits, deltas


def mask_head(network: MaskRCNN, pooled: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Return mask logits [P, 28, 28] of each region's class, int64 [P], for pooled features [P, channels, 14, 14].

    The last convolution is 1x1: a class's logit is the product of a pixel's channels with the class's weights. So the
    unused masks of other classes need not be computed.
    """
    predictor = network.roi_heads.mask_predictor
    features = predictor.relu(predictor.conv5_mask(network.roi_heads.mask_head(pooled)))
    weights = predictor.mask_fcn_logits.weight[classes, :, 0]  # [P, channels, 1]
    pixels = features.permute(0, 2, 3, 1).flatten(1, 2)  # [P, 784, channels]
    logits = pixels @ weights + predictor.mask_fcn_logits.bias[classes, None, None]
    masks: torch.Tensor = logits.view(-1, MASK_SIZE, MASK_SIZE)
    return masks
