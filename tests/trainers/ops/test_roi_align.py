"""RoIAlign over a feature pyramid is torchvision's, forward and backward."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torchvision.ops import MultiScaleRoIAlign

from tests.trainers import triton_on_cpu
from tests.trainers.triton_on_cpu import BINS, CANVAS, NUM_LEVELS, STRIDE, Regions, regions
from trainers.ops.roi_align import SAMPLES, pyramid_level, roi_align

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def ours(given: Regions, device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """The pooled features, and the gradients of the features of all levels."""
    features = [feature.to(device, dtype, copy=True).requires_grad_() for feature in given.features]
    rois, image, valid = given.rois.to(device), given.image.to(device), given.valid.to(device)
    pooled = roi_align(features, rois, image, valid, BINS, STRIDE)
    assert pooled.dtype == dtype
    assert pooled.is_contiguous(memory_format=torch.channels_last)
    pooled.backward(given.gradient.to(device, dtype))
    return [pooled.detach(), *(feature.grad for feature in features)]


def torchvisions(given: Regions) -> list[torch.Tensor]:
    """The same of the valid regions; zeros for the others."""
    features = [feature.clone().requires_grad_() for feature in given.features]
    names = [str(level) for level in range(NUM_LEVELS)]
    pool = MultiScaleRoIAlign(names, BINS, sampling_ratio=SAMPLES)
    own = [(given.valid & (given.image == image)).nonzero()[:, 0] for image in range(2)]  # it goes image by image
    output = pool(dict(zip(names, features, strict=True)), [given.rois[index] for index in own], [CANVAS] * 2)
    output.backward(given.gradient[torch.cat(own)])
    pooled = torch.zeros_like(given.gradient)
    pooled[torch.cat(own)] = output.detach()
    return [pooled, *(feature.grad for feature in features)]


def assert_close(tensors: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float) -> None:
    for tensor, other in zip(tensors, expected, strict=True):
        torch.testing.assert_close(tensor.float().cpu(), other, rtol=tolerance, atol=tolerance)


def test_the_inputs_are_what_the_tests_are_about() -> None:
    given = regions()
    levels = pyramid_level(given.rois, 2, 2 + NUM_LEVELS - 1)
    assert {int(level) for level in levels[given.valid]} == set(range(NUM_LEVELS))
    assert all(gradient.any() for gradient in torchvisions(given)[1:])
    reaches_out = ((given.rois[:, :2] < 0) | (given.rois[:, 2:] > torch.tensor(CANVAS[::-1]))).any(dim=1)
    assert 1 < (reaches_out & given.valid).sum() < given.valid.sum()
    assert (given.valid & (given.rois[:, 0] > CANVAS[1])).any()
    assert (given.valid & (given.rois[:, 2:] - given.rois[:, :2] < STRIDE).all(dim=1)).any()


@pytest.mark.parametrize(
    ("side", "level"), [(0, 0), (10, 0), (111.9, 0), (112, 1), (223.9, 1), (224, 2), (448, 3), (2000, 3)]
)
def test_a_region_s_level_goes_by_its_size(side: float, level: int) -> None:
    assert pyramid_level(torch.tensor([[7.0, 9, 7 + side, 9 + side]]), 2, 5).tolist() == [level]


def test_it_is_torchvisions() -> None:
    given = regions(copies=5)
    assert_close(ours(given), torchvisions(given), 1e-5)


def test_regions_that_are_not_valid_are_zero_and_have_no_gradient() -> None:
    some = regions()
    for tensor in ours(some._replace(valid=torch.zeros_like(some.valid))):
        assert not tensor.any()
    shown = ours(some)[0].flatten(1).any(dim=1)
    outside = some.rois[:, 0] > CANVAS[1]
    assert torch.equal(shown, some.valid & ~outside)
    other = some._replace(gradient=torch.where(some.valid[:, None, None, None], some.gradient, 1000.0))
    assert_close(ours(other), ours(some), 0)


@pytest.mark.slow
@needs_triton
def test_the_kernels_give_the_same_in_triton_s_interpreter() -> None:
    tensors = triton_on_cpu.results()
    assert tensors["pooled"].is_contiguous(memory_format=torch.channels_last)
    assert_close(
        [tensors["pooled"], *(tensors[f"gradient{level}"] for level in range(NUM_LEVELS))], ours(regions()), 1e-5
    )


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("num_channels", [5, 256])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 1e-2)], ids=str)
def test_on_a_gpu_it_is_the_same(num_channels: int, dtype: torch.dtype, tolerance: float) -> None:
    given = regions(num_channels, copies=10)
    # What fp32 makes of the numbers that the type can hold.
    rounded = given._replace(
        features=[feature.to(dtype).float() for feature in given.features], gradient=given.gradient.to(dtype).float()
    )
    assert_close(ours(given, "cuda", dtype), torchvisions(rounded), tolerance)
