"""The layer is batch normalisation, ReLU and a pool one after the other: output, gradients, running statistics."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode

from tests.trainers import triton_on_cpu
from tests.trainers.triton_on_cpu import Normalised, normalised
from trainers.ops.batchnorm import renew_running_statistics
from trainers.ops.stem import NormReluPool

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def filled(layer: nn.BatchNorm2d, given: Normalised) -> nn.BatchNorm2d:
    with torch.no_grad():
        layer.weight.copy_(given.weight)
        layer.bias.copy_(given.bias)
    return layer.to(given.maps.device)


def plainly(given: Normalised) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Pooled maps, the gradients of maps, weight and bias, and the state of the layer."""
    layer = filled(nn.BatchNorm2d(len(given.weight)), given)
    return passed(layer, lambda maps: F.max_pool2d(F.relu(layer(maps)), 3, stride=2, padding=1), given)


def ours(given: Normalised) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    layer = filled(NormReluPool(len(given.weight)), given)
    return passed(layer, torch.compile(layer, fullgraph=True) if given.maps.is_cuda else layer, given)


def passed(layer: nn.BatchNorm2d, function: Any, given: Normalised) -> tuple[list[torch.Tensor], Any]:
    maps = given.maps.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    pooled = function(maps)
    pooled.backward(given.gradient)
    assert maps.grad is not None
    assert layer.weight.grad is not None
    assert layer.bias.grad is not None
    return [pooled.detach(), maps.grad, layer.weight.grad, layer.bias.grad], layer.state_dict()


def on_gpu(given: Normalised, dtype: torch.dtype) -> Normalised:
    return Normalised(given.maps.cuda().to(dtype), given.weight, given.bias, given.gradient.cuda().to(dtype))


def assert_close(tensors: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float = 1e-5) -> None:
    for tensor, other in zip(tensors, expected, strict=True):
        torch.testing.assert_close(tensor.float(), other.float(), rtol=tolerance, atol=tolerance)


def test_on_a_cpu_it_is_the_plain_layers() -> None:
    (tensors, state), (expected, plain_state) = ours(normalised()), plainly(normalised())
    assert all(torch.equal(*pair) for pair in zip(tensors, expected, strict=True))
    assert state.keys() == plain_state.keys()
    assert all(torch.equal(state[name], plain_state[name]) for name in state)


def test_the_compiler_knows_the_shapes_of_a_gpu_s_pass_without_running_it() -> None:
    with FakeTensorMode(), torch.device("cuda"):
        maps = torch.empty(2, 16, 7, 10, dtype=torch.bfloat16)
        weight, bias, mean, rstd = torch.empty(4, 16)
        pooled, places = torch.ops.timetrial.norm_relu_pool(maps, weight, bias, mean, rstd)
        assert (pooled.shape, places.shape, pooled.dtype, places.dtype) == (
            (2, 16, 4, 5), (2, 16, 4, 5), torch.bfloat16, torch.int8,
        )  # fmt: skip
        assert pooled.is_contiguous(memory_format=torch.channels_last)
        gradients = torch.ops.timetrial.norm_relu_pool_backward(pooled, maps, places, weight, mean, rstd)
    kinds = [(tuple(gradient.shape), gradient.dtype) for gradient in gradients]
    assert kinds == [((2, 16, 7, 10), torch.bfloat16), ((16,), torch.float32), ((16,), torch.float32)]


@pytest.mark.slow
@needs_triton
def test_the_kernels_give_the_same_in_triton_s_interpreter() -> None:
    seen, (expected, _) = triton_on_cpu.results(), plainly(normalised())
    names = ("maps", "gradient_maps", "gradient_weight", "gradient_bias")
    assert_close([seen[f"pooled_{name}"] for name in names], expected)
    assert (expected[0] == 0).any()  # there are dead windows


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("sizes", [(2, 5, 7, 20), (3, 64, 56, 56), (2, 128, 33, 8), (1, 8, 1, 3)])
def test_the_kernels_give_the_same_on_a_gpu(sizes: tuple[int, int, int, int]) -> None:
    given = on_gpu(normalised(*sizes), torch.float32)
    (tensors, state), (expected, plain_state) = ours(given), plainly(given)
    assert_close(tensors, expected, 1e-4)
    assert_close(list(state.values()), list(plain_state.values()))
    assert all(torch.equal(*pair) for pair in zip(tensors, ours(given)[0], strict=True))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_maps_have_the_gradients_of_wide_ones(dtype: torch.dtype) -> None:
    narrow = on_gpu(normalised(4, 64, 40, 40), dtype)
    tensors, _ = ours(narrow)
    expected, _ = plainly(narrow._replace(maps=narrow.maps.float(), gradient=narrow.gradient.float()))
    assert tensors[0].dtype == dtype
    assert_close(tensors, expected, 1.6e-2)


@pytest.mark.gpu
@needs_gpu
def test_a_value_that_is_no_number_stays_one_and_a_momentum_may_be_missing() -> None:
    given = on_gpu(normalised(), torch.float32)
    given.maps[1, 3, 2, 2] = float("nan")
    tensors, _ = ours(given)
    assert tensors[0].isnan().any(dim=(0, 2, 3)).tolist() == [False, False, False, True, False]
    layer = filled(NormReluPool(5), normalised()).cuda()
    renew_running_statistics(torch.compile(layer), [normalised().maps.cuda()])
    torch.testing.assert_close(layer.running_mean.cpu(), normalised().maps.mean(dim=(0, 2, 3)))
