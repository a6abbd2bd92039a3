"""The rearranged first convolution is the plain one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torchvision.models import resnet18

from trainers.ops.stem.space_to_depth import SpaceToDepthConv, space_to_depth

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.mark.parametrize("size", [(32, 48), (300, 300), (230, 2)], ids=str)
def test_space_to_depth_leaves_the_convolution_as_it_is(size: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, *size, generator=generator, dtype=torch.float64)
    weight = torch.randn(5, 3, 7, 7, generator=generator, dtype=torch.float64)
    plain = F.conv2d(images, weight, stride=2, padding=3)
    blocks, kernel = space_to_depth(F.pad(images, (3, 3, 3, 3))), space_to_depth(F.pad(weight, (0, 1, 0, 1)))
    torch.testing.assert_close(F.conv2d(blocks, kernel), plain)


def test_its_parameter_is_that_of_the_plain_convolution() -> None:
    assert SpaceToDepthConv().state_dict().keys() == {"weight"}
    assert SpaceToDepthConv().weight.shape == resnet18().conv1.weight.shape


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("size", [64, 65])
def test_on_a_gpu_the_result_is_the_plain_convolutions(size: int) -> None:
    stem = SpaceToDepthConv().cuda().double()
    images = torch.randn(2, 3, size, size, device="cuda", dtype=torch.float64)
    torch.testing.assert_close(stem(images), F.conv2d(images, stem.weight, stride=2, padding=3))
