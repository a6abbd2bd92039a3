"""GNMT's LSTM in the type that autocast asks for, with gradients of its float32 weights."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from trainers.models.gnmt.lstm import Lstm, autocast_type, on_cudnn

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
WIDTH = 64


def results(layer: Lstm, x: torch.Tensor, call: Any) -> list[torch.Tensor]:
    """Output, last state, and the gradients of input and weights."""
    layer.zero_grad()
    x = x.clone().requires_grad_()
    output, (hidden, cell) = call(x)
    (output.float().sin().sum() + cell.float().sum()).backward()
    weights = list(layer.parameters())
    assert all(weight.grad is not None and weight.grad.dtype == torch.float32 for weight in weights)
    return [part.detach().float() for part in (output, hidden, cell, x.grad, *(weight.grad for weight in weights))]


def assert_within(tensors: list[torch.Tensor], expected: list[torch.Tensor], share: float) -> None:
    for tensor, other in zip(tensors, expected, strict=True):
        torch.testing.assert_close(tensor, other, rtol=0, atol=share * float(other.abs().max()))
        assert not torch.equal(tensor, other)


def test_in_another_type_it_is_the_same_within_that_type_s_rounding() -> None:
    torch.manual_seed(0)
    layer, x = Lstm(2 * WIDTH, WIDTH), torch.randn(7, 5, 2 * WIDTH)
    state = (torch.randn(1, 5, WIDTH), torch.randn(1, 5, WIDTH))
    for before in (None, state):
        expected = results(layer, x, lambda x, before=before: layer(x, before))
        halved = results(layer, x, lambda x, before=before: layer.in_type(torch.bfloat16, x, before))
        assert_within(halved, expected, 0.03)
    assert layer.in_type(torch.bfloat16, x, state)[0].dtype == torch.bfloat16


def test_the_type_is_autocast_s() -> None:
    x = torch.zeros(1)
    assert autocast_type(x) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert autocast_type(x) == torch.bfloat16


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("dtype", "share"), [(torch.bfloat16, 0.03), (torch.float16, 0.005)])
def test_on_a_gpu_it_is_computed_in_the_type_asked_for_without_a_copy_of_its_weights(
    dtype: torch.dtype, share: float
) -> None:
    if not on_cudnn(torch.device("cuda"), dtype):
        pytest.skip(f"cuDNN has no LSTM in {dtype} here")
    torch.manual_seed(0)
    layer, x = Lstm(2 * WIDTH, WIDTH).cuda(), torch.randn(7, 24, 2 * WIDTH, device="cuda")
    expected = results(layer, x, layer)
    with warnings.catch_warnings(), torch.autocast("cuda", dtype):
        warnings.simplefilter("error")  # cuDNN's copies are warned of
        assert layer(x)[0].dtype == dtype
        tensors = results(layer, x, layer)
    assert_within(tensors, expected, share)
