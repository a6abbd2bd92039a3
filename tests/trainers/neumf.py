"""A NeuMF with a batch of groups to train on, and ratings to draw from, for tests of the kernels."""

from __future__ import annotations

import sys
from functools import partial
from typing import NamedTuple

import torch

from trainers.data.ratings import draws_triton
from trainers.data.ratings.draws import rated_items
from trainers.data.ratings.loader import NUM_NEGATIVES, groups
from trainers.models.ncf import fused
from trainers.models.ncf.network import NeuMF
from trainers.ops.chance.counters import key_of


class Sampled(NamedTuple):
    """Arguments of trainers.models.ncf.module.training_loss."""

    net: NeuMF
    users: torch.Tensor
    items: torch.Tensor
    weights: torch.Tensor


def sampled(
    num_groups: int = 77, num_users: int = 7, num_items: int = 11, factors: int = 16,
    layers: tuple[int, ...] | list[int] = (24, 64, 32, 32), device: str = "cpu",
) -> Sampled:  # fmt: skip
    """Weights large enough for every part of a gradient to count; the last three groups have none of their own."""
    torch.manual_seed(0)
    net = NeuMF(num_users, num_items, factors, list(layers))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.2 / parameter.std() if parameter.numel() > 1 else 1)
    weights = torch.rand(num_groups) / num_groups
    weights[-3:] = 0
    users, items = torch.randint(num_users, (num_groups,)), torch.randint(num_items, (num_groups, 5))
    return Sampled(net.to(device), users.to(device), items.to(device), weights.to(device))


def by_kernels() -> dict[str, torch.Tensor]:
    """The loss, and the gradients of one thrice as large, where Triton is interpreted."""
    net, *batch = sampled()
    loss = fused.loss(net, net.rows(), *batch)
    (3 * loss).backward()
    gradients = {name: parameter.grad for name, parameter in net.named_parameters()}
    return {"loss": loss.detach(), **gradients}


def with_large_sums() -> Sampled:
    """A network whose third layer's gradient, summed over all samples, exceeds the range of fp16."""
    given = sampled(num_groups=400)
    with torch.no_grad():
        given.net.final.weight.mul_(100)
        given.net.others[0].bias.add_(20)
        given.net.others[1].bias.add_(5)
    return given


def large_sum_in_fp16() -> torch.Tensor:
    """The third layer's gradient by the kernels."""
    net, *batch = with_large_sums()
    with torch.autocast("cpu", torch.float16):
        loss = fused.loss(net, net.rows(), *batch)
    loss.backward()
    return net.others[1].weight.grad


def of_broken_weights() -> torch.Tensor:
    """The losses of networks with one parameter all NaN, for each parameter."""
    losses = []
    for name, _ in sampled().net.named_parameters():
        net, *batch = sampled(num_groups=9)
        with torch.no_grad():
            net.get_parameter(name).fill_(torch.nan)
            losses.append(fused.loss(net, net.rows(), *batch))
    return torch.stack(losses)


def drawn(kernels: bool) -> dict[str, torch.Tensor]:
    """Groups of users who rated from one item to all but one."""
    counts = torch.tensor([1, 40, 128, 299, 2])
    start = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    generator = torch.Generator().manual_seed(3)
    items = torch.cat([torch.randperm(300, generator=generator)[:count].sort()[0] for count in counts])
    rated = rated_items(300, start, items.int())
    positives = torch.randperm(len(items), generator=generator)
    draw = partial(draws_triton.groups, negatives=NUM_NEGATIVES) if kernels else groups
    return dict(zip(("users", "items"), draw(rated, positives, key_of(7)), strict=True))


if __name__ == "__main__":
    others = {"broken": of_broken_weights(), "large": large_sum_in_fp16()}
    torch.save(by_kernels() | drawn(kernels=True) | others, sys.argv[1])
