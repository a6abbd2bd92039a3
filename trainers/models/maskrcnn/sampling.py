"""Draws a fixed number of examples, a share of them positive, from each image's candidates, in fixed shapes."""

from __future__ import annotations

from typing import NamedTuple

import torch

IGNORED, NEGATIVE, POSITIVE = -1, 0, 1


class Sample(NamedTuple):
    """The drawn candidates of each image: positive ones, then negative ones, then empty slots."""

    chosen: torch.Tensor  # int64 [n, num], indices of candidates
    positive: torch.Tensor  # bool [n, num]
    valid: torch.Tensor  # bool [n, num], False for an empty slot


def sample(labels: torch.Tensor, num: int, positive_share: float) -> Sample:
    """Draw up to `num` of each image's candidates uniformly, with at most `positive_share` of them positive.

    Args:
        labels: int [n, A], POSITIVE, NEGATIVE or IGNORED (S. Ren et al. 2015, arXiv:1506.01497, section 3.1.3)
    """
    num = min(num, labels.shape[1])
    noise = torch.rand(labels.shape, device=labels.device)
    max_positive = int(num * positive_share)
    num_positive = (labels == POSITIVE).sum(dim=1, keepdim=True).clamp(max=max_positive)
    num_negative = torch.minimum((labels == NEGATIVE).sum(dim=1, keepdim=True), num - num_positive)
    positive_index = torch.where(labels == POSITIVE, noise, -1.0).topk(max_positive, dim=1).indices
    negative_index = torch.where(labels == NEGATIVE, noise, -1.0).topk(num, dim=1).indices
    slot = torch.arange(num, device=labels.device).expand(len(labels), num)
    positive = slot < num_positive
    padded = torch.nn.functional.pad(positive_index, (0, num - max_positive))
    index = torch.where(positive, padded, negative_index.gather(1, (slot - num_positive).clamp(min=0)))
    return Sample(index, positive, slot < num_positive + num_negative)
