"""ResNet image classifiers, ResNet-50 v1.5 by default, as MLPerf Training has it.

K. He et al. 2015, arXiv:1512.03385; v1.5 halves the resolution in the 3x3 rather than the first 1x1 convolution of a
bottleneck. Training uses SGD with momentum, a linear warm-up and linear batch-size scaling (P. Goyal et al. 2017,
arXiv:1706.02677), and then a half cosine (I. Loshchilov and F. Hutter 2016, arXiv:1608.03983).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from trainers.data.crop import MIN_AREA, SquareView
from trainers.data.image_folder import imagenet, shapes
from trainers.data.synthetic_images import synthetic
from trainers.models.pretrained import MEAN, STD, load_pretrained
from trainers.models.schedule import Schedule, check_below_one, is_count, is_number, require
from trainers.ops.compiling import compiled
from trainers.ops.distributed_sum import DistributedSum
from trainers.ops.stem import NormReluPool, SpaceToDepthConv
from trainers.workload import Batch, ClassificationData, TrialModule, Workload

NETWORKS = {18: torchvision.models.resnet18, 34: torchvision.models.resnet34, 50: torchvision.models.resnet50}
TOP = 5


class Classifier(nn.Module):
    """Maps uint8 [n, 3, height, width] to logits [n, classes]; normalising here lets the compiler fuse it."""

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, depth: int, num_classes: int, zero_init_gamma: bool) -> None:
        super().__init__()
        self.resnet = NETWORKS[depth](weights=None, num_classes=num_classes, zero_init_residual=zero_init_gamma)
        self.resnet.conv1, self.resnet.bn1 = SpaceToDepthConv(), NormReluPool(self.resnet.conv1.out_channels)
        self.resnet.relu = self.resnet.maxpool = nn.Identity()
        self.register_buffer("mean", 255 * torch.tensor(MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("scale", 1 / (255 * torch.tensor(STD).view(1, 3, 1, 1)), persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.resnet((images.float() - self.mean) * self.scale)
        return logits.float()


def training_loss(
    net: nn.Module, images: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor, label_smoothing: float
) -> torch.Tensor:
    """Return the weighted sum of the cross entropies, a scalar."""
    losses = F.cross_entropy(net(images), labels, reduction="none", label_smoothing=label_smoothing)
    return (losses * weights).sum()


def evaluate(net: nn.Module, images: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return weighted sums over a batch, float32 [4]: samples, correct top-1, correct top-5, cross entropy."""
    logits = net(images)
    right = logits.topk(min(TOP, logits.shape[1])).indices == labels[:, None]
    losses = F.cross_entropy(logits, labels, reduction="none")
    values = torch.stack([torch.ones_like(losses), right[:, 0].float(), right.any(dim=1).float(), losses])
    return (values * weights).sum(dim=1)  # not a matrix product, which autocast would round


class ResNet(TrialModule):
    """Trains a ResNet by SGD for `epochs` epochs, with a linear warm-up of `warmup_epochs` (which may be fractions).

    After the warm-up the rate falls to zero along a half cosine, or to a tenth at each of `decay_epochs`, or to
    `end_learning_rate` along a polynomial of `decay_power`. Batch normalisation and biases have no weight decay.
    `zero_init_gamma` initializes every residual branch to zero.

    Images are cropped to `image_size` pixels. Training crops are random and show at least `min_crop_area` of the image.
    Evaluation resizes the shorter side to `eval_resize` and crops the centre. `pretrained` is a file of torchvision's
    weights. Raises ConfigError for an invalid option.
    """

    same_kernels = True

    def __init__(
        self,
        data: ClassificationData,
        learning_rate: float,
        weight_decay: float,
        epochs: int,
        warmup_epochs: float = 0.0,
        decay_epochs: list[float] | None = None,
        decay_power: float | None = None,
        end_learning_rate: float = 0.0,
        momentum: float = 0.9,
        label_smoothing: float = 0.0,
        image_size: int = 224,
        eval_resize: int = 256,
        min_crop_area: float = MIN_AREA,
        depth: int = 50,
        zero_init_gamma: bool = False,
        pretrained: str | None = None,
    ) -> None:
        super().__init__()
        self.schedule = Schedule(
            learning_rate, epochs, decay_epochs, warmup_epochs,
            in_step=0.5, decay_power=decay_power, end_learning_rate=end_learning_rate,
        )  # fmt: skip
        check_below_one(momentum=momentum, label_smoothing=label_smoothing)
        check_images(image_size, eval_resize, min_crop_area)
        require("depth", depth, depth in NETWORKS, " or ".join(map(str, NETWORKS)))
        self.weight_decay, self.momentum = weight_decay, momentum
        self.max_epochs, self.ends_at_zero = epochs, self.schedule.ends_at_zero
        self.label_smoothing = label_smoothing
        self.view = SquareView(image_size, eval_resize, min_crop_area)
        self.net = Classifier(depth, data.num_classes, zero_init_gamma)
        if pretrained is not None:
            load_pretrained(self.net.resnet, pretrained, head="fc")
        # cuDNN's tensor-core kernels need this layout, and a CPU is faster with it. DDP lays out its buckets later.
        self.net = self.net.to(memory_format=torch.channels_last)
        self._training_loss, self._evaluate = training_loss, evaluate
        self._sums = DistributedSum()

    def compile_hot_path(self) -> None:
        """Compile network and loss, for training and evaluation; shapes never change, so each compiles once."""
        self._training_loss = compiled(training_loss, self.device, autotune=True, cuda_graphs=not self.captured)
        self._evaluate = compiled(evaluate, self.device)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        parameters = list(self.net.parameters())
        groups: list[dict[str, Any]] = [
            {"params": [parameter for parameter in parameters if parameter.ndim > 1]},
            {"params": [parameter for parameter in parameters if parameter.ndim <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.SGD(
            groups,
            lr=self.schedule.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            fused=True,
        )

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self.schedule.apply(self.trainer, batch_idx)

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        images, labels, weights = batch["images"], batch["labels"], batch["weights"]
        return self._training_loss(self.net, images, labels, weights, self.label_smoothing)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        # Training batches weigh their samples; in an evaluation each counts as one.
        weights = (batch["weights"] > 0).float()
        self._sums.add(self._evaluate(self.net, batch["images"], batch["labels"], weights))

    def metrics(self) -> dict[str, float]:
        total, first, top, loss = self._sums.reduce()
        return {"accuracy": first / total, "accuracy_top5": top / total, "loss": loss / total}

    def predictor(self, batch: Batch) -> tuple[nn.Module, torch.Tensor]:
        return self.net, batch["images"]


def check_images(image_size: int, eval_resize: int, min_crop_area: float) -> None:
    """Raise ConfigError for images that the network cannot halve or that cannot be cut out."""
    valid = is_count(image_size) and image_size >= 32
    require("image_size", image_size, valid, "32 pixels or more: the network halves them five times")
    valid = is_count(eval_resize) and eval_resize >= image_size
    require("eval_resize", eval_resize, valid, f"image_size={image_size} pixels or more")
    valid = is_number(min_crop_area) and 0 < min_crop_area <= 1
    require("min_crop_area", min_crop_area, valid, "a share above 0, up to 1")


WORKLOAD = Workload(module=ResNet, data={"shapes": shapes, "imagenet": imagenet, "synthetic": synthetic}, unit="images")
