"""ResNet-50 in plain PyTorch on generated images: python resnet50_pytorch.py --size full --precision bf16."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import images as data
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A bottleneck of 1x1, 3x3 and 1x1 convolutions, with the stride in the 3x3 (v1.5)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *convolution(channels, width, 1), nn.ReLU(), *convolution(width, width, 3, stride), nn.ReLU(),
            *convolution(width, 4 * width, 1),
        )  # fmt: skip
        same = stride == 1 and channels == 4 * width
        self.shortcut = nn.Identity() if same else nn.Sequential(*convolution(channels, 4 * width, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.layers(x) + self.shortcut(x))


def convolution(channels: int, width: int, kernel: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    layer = nn.Conv2d(channels, width, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer, nn.BatchNorm2d(width)


def resnet(size: data.Size) -> nn.Sequential:
    layers: list[nn.Module] = [*convolution(3, size.width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = size.width
    for stage, depth in enumerate(size.depths):
        width = size.width * 2**stage
        for block in range(depth):
            layers.append(Block(channels, width, 2 if stage and not block else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, data.CLASSES))


def profiler_of(folder: str | None) -> Any:
    """PyTorch's profiler for ten steps of the second epoch; nothing without a folder for its trace."""
    if folder is None:
        return nullcontext()
    plan = torch.profiler.schedule(wait=18, warmup=2, active=10, repeat=1)
    return torch.profiler.profile(
        schedule=plan, on_trace_ready=torch.profiler.tensorboard_trace_handler(folder, use_gzip=True)
    )


def accuracy(
    logits: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor, labels: torch.Tensor, batch: int
) -> float:
    parts = zip(images.split(batch), labels.split(batch), strict=True)
    with torch.no_grad():
        return sum(int((logits(pixels).argmax(1) == answer).sum()) for pixels, answer in parts) / len(labels)


def main() -> None:
    arguments = data.options("ResNet-50 in PyTorch", compiled="false")
    size, batch_size = data.SIZES[arguments.size], arguments.batch_size
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(arguments.seed)
    x, y, held_out, answers = (torch.from_numpy(array).to(device) for array in data.dataset(size))
    y, answers = y.long(), answers.long()
    model = resnet(size).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), arguments.lr, data.MOMENTUM, weight_decay=data.WEIGHT_DECAY)
    steps = size.train // batch_size
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs * steps)
    cast = torch.autocast(device.type, torch.bfloat16) if arguments.precision == "bf16" else nullcontext()

    def logits(pixels: torch.Tensor) -> torch.Tensor:
        normal = (pixels.permute(0, 3, 1, 2).float() - data.MEAN) / data.STD
        with cast:
            return model(normal.contiguous(memory_format=torch.channels_last)).float()

    def loss_of(pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits(pixels), labels, label_smoothing=data.SMOOTHING)

    compiled = torch.compile(loss_of) if arguments.compile == "true" else loss_of
    print(f"training on {device} with torch {torch.__version__}", flush=True)
    with profiler_of(arguments.trace) as profiler:
        for epoch in range(1, arguments.epochs + 1):
            model.train()
            for step, indices in enumerate(data.batches(size.train, batch_size, arguments.seed, epoch), 1):
                batch = torch.from_numpy(indices).to(device)
                optimizer.zero_grad()
                loss = compiled(x[batch], y[batch])
                loss.backward()
                optimizer.step()
                schedule.step()
                if profiler:
                    profiler.step()
                if step % data.LOG_EVERY == 0 or step == steps:
                    data.say(epoch, step, steps, batch_size, loss.item())
            model.eval()
            print(f"epoch {epoch} accuracy {accuracy(logits, held_out, answers, batch_size):.4f}", flush=True)


if __name__ == "__main__":
    main()
