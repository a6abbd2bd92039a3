"""Gradients are clipped as by PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trainers.ops.sharding import clip


@pytest.mark.parametrize("most", [0.1, 1e3])
def test_the_norm_of_all_gradients_is_at_most_what_is_given(most: float) -> None:
    torch.manual_seed(1)
    gradients = [torch.randn(3, 4), torch.randn(5)]
    others = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(others, gradients, strict=True):
        parameter.grad = gradient.clone()
    nn.utils.clip_grad_norm_(others, most)
    clip([*gradients, None], most)
    torch.testing.assert_close(gradients, [parameter.grad for parameter in others])
