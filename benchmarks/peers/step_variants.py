"""The training steps that torchvision_steps.py compares: ours, and torchvision's models with several tunings."""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models import detection
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator

from benchmarks.steps.run_alone import AUTOCAST, composed
from trainers.data.detection.synthetic import CLASSES, OBJECTS, generated_batch
from trainers.loop.build import make_data, make_module
from trainers.models.ssd.default_boxes import ASPECT_RATIOS, IMAGE_SIZE, SCALES, STEPS, default_boxes
from trainers.models.ssd.network import MAP_CHANNELS, Ssd300
from trainers.workload import TrialModule, load_workload, viewed

Step = Callable[[], None]
MASKRCNN_CANVAS = (800, 1216)
TUNINGS = ("as it comes", "channels_last, fused SGD", "+ network compiled", "+ CUDA graphs", "+ whole compiled")
COUNTED_IMAGES = 2  # batch in which a forward pass's multiplications are counted, on the CPU


class Candidate(NamedTuple):
    """A variant. `build` takes batch size, device and precision."""

    name: str
    build: Callable[[int, torch.device, str], tuple[Step, float]]  # step; GMAC of an image's forward pass


class SsdMaps(nn.Module):
    """The six feature maps of our SSD300 from plain layers, for torchvision's SSD class."""

    def __init__(self) -> None:
        super().__init__()
        self.out_channels = list(MAP_CHANNELS)
        network = Ssd300(CLASSES)
        self.backbone, self.extras = network.backbone, network.extras
        self.backbone.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)  # computes the same as our stem
        self.backbone.bn1 = nn.Sequential(nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1))

    def forward(self, images: torch.Tensor) -> OrderedDict[str, torch.Tensor]:
        maps = [self.backbone(images)]
        for extra in self.extras:
            maps.append(extra(maps[-1]))
        return OrderedDict((str(level), features) for level, features in enumerate(maps))


class DefaultBoxes(DefaultBoxGenerator):
    """MLPerf's default boxes: centres, too, are clipped to the image. 114 of 8,732 are 4 pixels off torchvision's."""

    def __init__(self) -> None:
        scales = [side / IMAGE_SIZE for side in SCALES]
        super().__init__([list(ratios) for ratios in ASPECT_RATIOS], scales=scales, steps=list(STEPS))

    def _grid_default_boxes(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        boxes: torch.Tensor = super()._grid_default_boxes(*args, **kwargs)
        return torch.cat((boxes[:, :2].clamp(max=1), boxes[:, 2:]), dim=1)


def ssd_resnet34() -> nn.Module:
    """torchvision's SSD with our backbone, default boxes, classes and image size."""
    boxes = DefaultBoxes()
    net = detection.ssd.SSD(SsdMaps(), boxes, (IMAGE_SIZE, IMAGE_SIZE), CLASSES + 1)
    image = torch.zeros(1, 3, IMAGE_SIZE, IMAGE_SIZE)
    maps = list(net.backbone.eval()(image).values())
    [made] = boxes(detection.image_list.ImageList(image, [(IMAGE_SIZE, IMAGE_SIZE)]), maps)
    assert torch.allclose(made, default_boxes(), atol=1e-3), "the default boxes differ"
    return net


def ssd_vgg16() -> nn.Module:
    return detection.ssd300_vgg16(weights=None, weights_backbone=None, num_classes=CLASSES + 1)


def maskrcnn() -> nn.Module:
    """maskrcnn_resnet50_fpn, frozen as with pretrained weights: batch normalisation and the first two stages."""
    body = torchvision.models.resnet50(norm_layer=torchvision.ops.misc.FrozenBatchNorm2d)
    net = detection.MaskRCNN(detection.backbone_utils._resnet_fpn_extractor(body, 3), num_classes=CLASSES + 1)
    net.transform.fixed_size = MASKRCNN_CANVAS[::-1]
    return net


PEERS: dict[str, dict[str, tuple[Callable[[], nn.Module], tuple[str, ...]]]] = {
    "resnet50": {"torchvision resnet50": (torchvision.models.resnet50, TUNINGS[:2] + TUNINGS[3:])},
    "ssd": {
        "torchvision SSD, ResNet-34": (ssd_resnet34, TUNINGS),
        "torchvision ssd300_vgg16": (ssd_vgg16, TUNINGS[:3]),
    },
    "maskrcnn": {"torchvision maskrcnn_resnet50_fpn": (maskrcnn, TUNINGS)},
}
# Submodules with fixed shapes and without a loop over images.
NETWORKS = {"resnet50": (), "ssd": ("backbone", "head"), "maskrcnn": ("backbone", "rpn.head")}


def candidates(workload: str) -> Iterator[Candidate]:
    """Ours, then the peers' variants; those that compile longest come last."""
    yield Candidate("ours", partial(build_ours, workload))
    pairs = [(name, make, tuning) for name, (make, tunings) in PEERS[workload].items() for tuning in tunings]
    for name, make, tuning in sorted(pairs, key=lambda pair: pair[2] == TUNINGS[-1]):
        yield Candidate(f"{name}: {tuning}", partial(build_peer, workload, make, tuning))


def build_peer(
    workload: str, make: Callable[[], nn.Module], tuning: str, batch_size: int, device: torch.device, precision: str
) -> tuple[Step, float]:
    net, tuned = make().train(), tuning != TUNINGS[0]
    if tuned and workload != "resnet50":
        net.transform._skip_resize = True  # type: ignore[union-attr]  # images have their final size
    loss_of = classifier_loss if workload == "resnet50" else detector_loss
    gmac = forward_gmac(loss_of(net, workload, COUNTED_IMAGES, torch.device("cpu"), False), COUNTED_IMAGES)
    net = net.to(device)
    if tuned:
        net = net.to(memory_format=torch.channels_last)
    mode = "reduce-overhead" if tuning == "+ CUDA graphs" else None
    if tuning == "+ whole compiled" or (mode and workload == "resnet50"):
        net.compile(mode=mode)
    elif tuning in TUNINGS[2:4]:
        for part in NETWORKS[workload]:
            net.get_submodule(part).compile(dynamic=False, mode=mode)
    loss = loss_of(net, workload, batch_size, device, tuned)
    return train_step(net, loss, device, precision, tuned), gmac


def classifier_loss(
    net: Any, workload: str, batch_size: int, device: torch.device, tuned: bool
) -> Callable[[], torch.Tensor]:
    images, labels = torch.rand(batch_size, 3, 224, 224, device=device), torch.randint(0, 1000, (batch_size,))
    if tuned:
        images = images.to(memory_format=torch.channels_last)
    labels = labels.to(device)
    return lambda: F.cross_entropy(net(images), labels)


def detector_loss(
    net: Any, workload: str, batch_size: int, device: torch.device, tuned: bool
) -> Callable[[], torch.Tensor]:
    canvas = MASKRCNN_CANVAS if workload == "maskrcnn" else (IMAGE_SIZE, IMAGE_SIZE)
    batch = generated_batch(batch_size, canvas, OBJECTS, CLASSES, False, device)
    images = list(batch["images"].float() / 255)
    targets = []
    for boxes, labels in zip(batch["boxes"], batch["labels"], strict=True):
        target = {"boxes": boxes, "labels": labels}
        if workload == "maskrcnn":
            target["masks"] = box_masks(boxes, *canvas)
        targets.append(target)
    return lambda: sum(net(images, targets).values())


def box_masks(boxes: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """uint8 [n, height, width]: masks of whole boxes. A mask's content does not change the work."""
    y, x = torch.arange(height, device=boxes.device)[:, None], torch.arange(width, device=boxes.device)
    x0, y0, x1, y1 = (side[:, None, None] for side in boxes.unbind(1))
    return ((x >= x0) & (x < x1) & (y >= y0) & (y < y1)).to(torch.uint8)


def build_ours(workload: str, batch_size: int, device: torch.device, precision: str) -> tuple[Step, float]:
    """Our module's step with its compiled hot path, without Lightning."""
    gpus = int(device.type == "cuda")
    config = composed([f"model={workload}", "dataset=synthetic", f"precision={precision}", f"gpus={gpus}"])
    with tempfile.TemporaryDirectory() as folder:
        if workload == "maskrcnn":  # freezes the same layers; the values of the weights do not matter
            config.model.hparams["pretrained"] = f"{folder}/resnet50.pt"
            torch.save(torchvision.models.resnet50().state_dict(), Path(folder) / "resnet50.pt")
        loaded = load_workload(config)
        data: Any = make_data(loaded, config.dataset)
        module: TrialModule = make_module(loaded, data, config)
    data = viewed(data, module)
    if workload == "maskrcnn":
        data.canvas = MASKRCNN_CANVAS

    def loss_of(num: int, where: torch.device) -> Callable[[], torch.Tensor]:
        [batch, *_] = data.example_batches(num, where)
        return lambda: module.training_step(batch, 0)  # type: ignore[return-value]

    gmac = forward_gmac(loss_of(COUNTED_IMAGES, torch.device("cpu")), COUNTED_IMAGES)
    vars(module).get("_anchors", {}).clear()  # Mask R-CNN caches them on the CPU
    module.to(device).train()
    if device.type == "cuda":
        module.compile_hot_path()
    return train_step(module, loss_of(batch_size, device), device, precision, True), gmac


def forward_gmac(loss: Callable[[], torch.Tensor], num_images: int) -> float:
    """10^9 multiply-adds of an image's forward pass and loss: half of PyTorch's FLOP count, matrix work only."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        loss()
    return counter.get_total_flops() / 2e9 / num_images


def train_step(
    net: nn.Module, loss: Callable[[], torch.Tensor], device: torch.device, precision: str, fused: bool
) -> Step:
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=1e-5, momentum=0.9, weight_decay=1e-4, fused=fused)
    kind = AUTOCAST.get(precision)

    def step() -> None:
        torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad()
        with torch.autocast(device.type, kind or torch.bfloat16, enabled=kind is not None):
            value = loss()
        value.backward()
        optimizer.step()

    return step
