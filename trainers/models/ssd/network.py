"""SSD300's network: ResNet-34 up to its third stage, five smaller maps after it, and a head on each of the six maps.

K. He et al. 2015 (arXiv:1512.03385) and W. Liu et al. 2016 (arXiv:1512.02325), combined as in MLPerf Training v0.5's
reference: the third stage keeps the second's 38x38 cells.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models.resnet import BasicBlock

from conf.schema import ConfigError
from trainers.models.pretrained import MEAN, STD, read_state
from trainers.models.ssd.colour_jitter import ColourJitter
from trainers.models.ssd.default_boxes import BOXES_PER_CELL, default_boxes
from trainers.ops.stem import NormReluPool, SpaceToDepthConv

BACKBONES = {"resnet18": (2, 2, 2), "resnet34": (3, 4, 6)}  # blocks of the first three stages
MAP_CHANNELS = (256, 512, 512, 256, 256, 256)
REDUCED_CHANNELS = (256, 256, 128, 128, 128)  # between a map and the next
STRIDED = (True, True, True, False, False)  # 38 to 19 to 10 to 5 cells by stride 2; to 3 and to 1 without padding
CHANNEL_MULTIPLE = 8  # Tensor-core kernels need channels, of 2 bytes each, in units of 16 bytes.


class Ssd300(nn.Module):
    """SSD300. `width` multiplies all numbers of channels."""

    default_boxes: torch.Tensor
    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, num_classes: int, backbone: str = "resnet34", width: float = 1.0) -> None:
        super().__init__()
        self.backbone = build_backbone(BACKBONES[backbone], width)
        channels = [scaled(count, width) for count in MAP_CHANNELS]
        reduced = [scaled(count, width) for count in REDUCED_CHANNELS]
        self.extras = nn.ModuleList(
            build_extra(before, between, after, strided)
            for (before, after), between, strided in zip(pairwise(channels), reduced, STRIDED, strict=True)
        )
        self.heads = nn.ModuleList(
            Head(count, boxes_per_cell, num_classes + 1)
            for count, boxes_per_cell in zip(channels, BOXES_PER_CELL, strict=True)
        )
        self.jitter = ColourJitter()
        constants = {"default_boxes": default_boxes(), "mean": torch.tensor(MEAN), "std": torch.tensor(STD)}
        for name, tensor in constants.items():  # Buffers are on the device before a step needs them.
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return deltas [n, 8732, 4] and logits [n, 8732, num_classes + 1] for images uint8 [n, 3, 300, 300].

        Class 0 is background.
        """
        deltas, logits = self.by_map(images)
        return torch.cat(deltas, dim=1), torch.cat(logits, dim=1)

    def by_map(
        self, images: torch.Tensor, draws: torch.Tensor | None = None
    ) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        """Return deltas and logits of each of the six maps. A loss of each map needs no copy of them all.

        Args:
            images: uint8 [n, 3, 300, 300]
            draws: float32 [4, n], which change the colours, or None
        """
        pixels = images.float() * (1 / 255)
        if draws is not None:
            pixels = self.jitter(pixels, draws)
        pixels = (pixels - self.mean[:, None, None]) / self.std[:, None, None]
        maps = [self.backbone(pixels.contiguous(memory_format=torch.channels_last))]
        for extra in self.extras:
            maps.append(extra(maps[-1]))
        deltas, logits = zip(*(head(features) for head, features in zip(self.heads, maps, strict=True)), strict=True)
        return deltas, logits


class Head(nn.Module):
    """Computes deltas [n, cells * boxes_per_cell, 4] and logits [n, cells * boxes_per_cell, num_logits] of a map.

    One convolution computes both, so that the map is read once.
    """

    def __init__(self, channels: int, boxes_per_cell: int, num_logits: int) -> None:
        super().__init__()
        self.parts = (boxes_per_cell * 4, boxes_per_cell * num_logits)
        self.conv = nn.Conv2d(channels, sum(self.parts), 3, padding=1)
        for part in self.conv.weight.split(self.parts):  # In the paper each part is a convolution of its own.
            nn.init.xavier_uniform_(part)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # Pad with channels that are not used and are not parameters.
        missing = -self.conv.out_channels % CHANNEL_MULTIPLE
        assert self.conv.bias is not None
        weight, bias = F.pad(self.conv.weight, (0, 0, 0, 0, 0, 0, 0, missing)), F.pad(self.conv.bias, (0, missing))
        values = F.conv2d(features, weight, bias, padding=1).permute(0, 2, 3, 1)  # channels last, as in memory
        deltas, logits, _ = values.split((*self.parts, missing), dim=3)
        num_boxes = self.parts[0] // 4 * features.shape[2] * features.shape[3]
        return deltas.reshape(-1, num_boxes, 4), logits.reshape(values.shape[0], num_boxes, -1)


def scaled(channels: int, width: float) -> int:
    return max(1, round(channels * width / CHANNEL_MULTIPLE)) * CHANNEL_MULTIPLE


def build_backbone(num_blocks: tuple[int, int, int], width: float) -> nn.Sequential:
    """Return torchvision's ResNet up to `layer3`, with its names; float [n, 3, 300, 300] to [n, 256 width, 38, 38]."""
    stem = scaled(64, width)
    layers: OrderedDict[str, nn.Module] = OrderedDict(conv1=SpaceToDepthConv(stem), bn1=NormReluPool(stem))
    before = stem
    for index, (count, channels, stride) in enumerate(zip(num_blocks, (64, 128, 256), (1, 2, 1), strict=True)):
        after = scaled(channels, width)
        layers[f"layer{index + 1}"] = build_stage(before, after, count, stride)
        before = after
    backbone = nn.Sequential(layers)
    for layer in backbone.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return backbone


def build_stage(before: int, after: int, num_blocks: int, stride: int) -> nn.Sequential:
    shortcut = None
    if before != after or stride != 1:
        shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after))
    first = BasicBlock(before, after, stride, shortcut)
    return nn.Sequential(first, *(BasicBlock(after, after) for _ in range(num_blocks - 1)))


def build_extra(before: int, between: int, after: int, strided: bool) -> nn.Sequential:
    """Return the layers from one map to the next, without batch normalisation, as in the reference."""
    reduce = nn.Conv2d(before, between, 1)
    shrink = nn.Conv2d(between, after, 3, stride=2 if strided else 1, padding=1 if strided else 0)
    for layer in (reduce, shrink):
        nn.init.xavier_uniform_(layer.weight)
    return nn.Sequential(reduce, nn.ReLU(inplace=True), shrink, nn.ReLU(inplace=True))


def load_pretrained(backbone: nn.Sequential, path: str) -> None:
    """Load the first stages of torchvision's weights of a whole ResNet.

    Raises ConfigError if the file cannot be read or belongs to another network.
    """
    current = backbone.state_dict()
    # torchvision's older files have no counts of batches, which only a momentum of None would use.
    counts = {name: tensor for name, tensor in current.items() if name.endswith("num_batches_tracked")}
    state = counts | read_state(path)
    unfit = [name for name, tensor in current.items() if name not in state or state[name].shape != tensor.shape]
    if unfit:
        raise ConfigError(
            f"model.hparams.pretrained={path}: holds weights of another network (missing or of another shape:"
            f" {', '.join(unfit[:3])}; {len(unfit)} in all). Next: give torchvision's file for model.hparams.backbone,"
            " or null"
        )
    backbone.load_state_dict({name: state[name] for name in current})
