"""Convolutions of ResNet-50, tensors to run them on, and the passes around them that PyTorch compiles today."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

CHANNEL = (0, 2, 3)  # the dimensions that a channel's statistics are taken over
IMAGE_SIZE = 224


class Layer(NamedTuple):
    """A convolution of the network. `normalises`: its input is the ReLU of a batch normalisation alone."""

    channels: int
    outputs: int
    kernel: int
    stride: int
    padding: int
    size: int
    normalises: bool
    ends_block: bool

    def convolution(self) -> dict[str, list[int]]:
        return {"padding": [self.padding] * 2, "stride": [self.stride] * 2, "dilation": [1, 1]}

    def size_out(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    def values(self, batch: int) -> tuple[int, int, int]:
        """Numbers of values of input, output and weights."""
        x, y = self.channels * self.size**2, self.outputs * self.size_out() ** 2
        return batch * x, batch * y, self.channels * self.outputs * self.kernel**2

    def flop(self, batch: int) -> int:
        return 2 * self.values(batch)[1] * self.channels * self.kernel**2

    def __str__(self) -> str:
        stride = f"/{self.stride}" if self.stride > 1 else ""
        return f"{self.kernel}x{self.kernel}{stride} {self.channels}-{self.outputs} at {self.size}"


def layers() -> dict[Layer, int]:
    """Distinct convolutions with their counts; the first is the 4x4 one over twelve channels (SpaceToDepthConv)."""
    counts = {Layer(12, 64, 4, 1, 0, IMAGE_SIZE // 2 + 3, False, False): 1}

    def counted(name: str) -> Callable[..., None]:
        def hook(module: nn.Conv2d, inputs: tuple[Tensor], _: Tensor) -> None:
            kernel, stride, padding = (int(pair[0]) for pair in (module.kernel_size, module.stride, module.padding))
            inner, last = name.endswith(("conv2", "conv3")), name.endswith("conv3")
            sizes = (kernel, stride, padding, inputs[0].shape[2])
            layer = Layer(module.in_channels, module.out_channels, *sizes, inner, last)
            counts[layer] = counts.get(layer, 0) + 1

        return hook

    with torch.device("meta"):
        network = torchvision.models.resnet50().eval()
        for name, module in network.named_modules():
            if isinstance(module, nn.Conv2d) and name != "conv1":
                module.register_forward_hook(counted(name))
        network(torch.empty(1, 3, IMAGE_SIZE, IMAGE_SIZE))
    return counts


class Operands:
    """Tensors of a layer: x, its normalised ReLU a, weights w, output y, and gradients dy and da."""

    EPSILON = 1e-5

    def __init__(self, layer: Layer, batch: int, dtype: torch.dtype, device: str = "cuda") -> None:
        self.layer = layer
        torch.manual_seed(0)

        def drawn(*shape: int, scale: float = 1.0) -> Tensor:
            values = torch.empty(shape, dtype=dtype, device=device, memory_format=torch.channels_last)
            return values.normal_(std=scale)

        x_shape = (batch, layer.channels, layer.size, layer.size)
        self.x, self.da = drawn(*x_shape), drawn(*x_shape, scale=0.1)
        fan_in = layer.channels * layer.kernel**2
        self.w = drawn(layer.outputs, layer.channels, layer.kernel, layer.kernel, scale=(2 / fan_in) ** 0.5)
        variance, mean = torch.var_mean(self.x.float(), CHANNEL, correction=0, keepdim=True)
        self.mean, self.rstd = mean, (variance + self.EPSILON).rsqrt()
        self.gamma = 0.5 + torch.rand_like(mean)
        self.beta = 0.2 * torch.randn_like(mean)
        self.scale = self.gamma * self.rstd
        self.bias = self.beta - mean * self.scale
        self.a = normalised(self.x, self.scale, self.bias)
        self.y = self.convolved(self.a)
        self.dy = drawn(*self.y.shape, scale=0.1)

    def convolved(self, a: Tensor) -> Tensor:
        return F.conv2d(a, self.w, stride=self.layer.stride, padding=self.layer.padding)

    def gradients(self, of_input: bool) -> Tensor:
        """Gradient of the convolution's input, or of its weights."""
        of = self.layer.convolution()
        ends = (of["stride"], of["padding"], of["dilation"], False, [0, 0], 1, [of_input, not of_input, False])
        both = torch.ops.aten.convolution_backward(self.dy, self.a, self.w, None, *ends)
        return both[0 if of_input else 1]


def statistics(y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.var_mean(y.float(), CHANNEL, correction=0)


def normalised(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(x.float() * scale + bias).to(x.dtype)


def norm(x: Tensor, shortcut: Tensor | None) -> Tensor:
    """Batch normalisation with unit weights, plus a shortcut, then ReLU."""
    variance, mean = torch.var_mean(x.float(), CHANNEL, correction=0, keepdim=True)
    out = (x.float() - mean) * (variance + Operands.EPSILON).rsqrt()
    return torch.relu(out if shortcut is None else out + shortcut).to(x.dtype)


def backward(da: Tensor, a: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
    """Gradients of x, gamma and beta through batch normalisation and ReLU."""
    return normalised_backward(torch.where(a > 0, da, 0), x, mean, rstd, gamma)


def normalised_backward(dz: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
    total = dz.float().sum(CHANNEL, keepdim=True)
    product = (dz.float() * x.float()).sum(CHANNEL, keepdim=True)
    return applied(dz, total, product, x, mean, rstd, gamma)


def applied(
    dz: Tensor, total: Tensor, product: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, gamma: Tensor
) -> tuple[Tensor, ...]:
    """Gradients from the sums of dz and of dz * x."""
    samples = x.numel() // x.shape[1]
    d_gamma = (product - mean * total) * rstd
    dx = gamma * rstd * (dz.float() - total / samples - (x.float() - mean) * rstd * d_gamma / samples)
    return dx.to(x.dtype), d_gamma, total


def combined(dz: Tensor, x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Gradient of x from cuDNN's coefficients."""
    return (a * dz.float() + b * x.float() + c).to(x.dtype)


def in_passes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function for each shape, with the compiler's settings of our ResNet-50 except its CUDA graphs."""
    return torch.compile(function, dynamic=False, options={"max_autotune_pointwise": True})
