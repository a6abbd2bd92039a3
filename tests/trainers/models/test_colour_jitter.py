"""Random colours, against torchvision's own arithmetic where they are the same."""

import math

import pytest
import torch
from torchvision.transforms.v2 import functional as tv

from trainers.models.ssd.colour_jitter import BRIGHTNESS, CONTRAST, HUE, SATURATION, YIQ, ColourJitter


def pixels(low: float = 0.3, high: float = 0.6) -> torch.Tensor:
    """In the middle, where nothing has to be limited."""
    generator = torch.Generator().manual_seed(1)
    return torch.rand(2, 3, 5, 7, generator=generator) * (high - low) + low


def jitter(images: torch.Tensor, **changed: float) -> torch.Tensor:
    names = ("brightness", "contrast", "saturation", "hue")
    draws = torch.tensor([[changed.get(name, 0.5)] for name in names]).expand(4, len(images))
    return ColourJitter()(images, draws)


def test_draws_of_a_half_change_nothing() -> None:
    torch.testing.assert_close(jitter(pixels(0, 1)), pixels(0, 1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("draw", [0.0, 0.8])
def test_brightness_contrast_and_saturation_are_torchvisions(draw: float) -> None:
    centred = draw * 2 - 1
    expected = tv.adjust_brightness(pixels(), 1 + centred * BRIGHTNESS)
    torch.testing.assert_close(jitter(pixels(), brightness=draw), expected, rtol=0, atol=1e-3)
    expected = tv.adjust_contrast(pixels(), 1 + centred * CONTRAST)
    torch.testing.assert_close(jitter(pixels(), contrast=draw), expected, rtol=0, atol=1e-3)
    expected = tv.adjust_saturation(pixels(), 1 + centred * SATURATION)
    torch.testing.assert_close(jitter(pixels(), saturation=draw), expected, rtol=0, atol=1e-3)


def test_hue_turns_the_chroma_and_keeps_the_luma() -> None:
    def yiq(images: torch.Tensor) -> torch.Tensor:
        return torch.einsum("ij,njhw->nihw", torch.tensor(YIQ, dtype=torch.float32), images)

    before, after = yiq(pixels()), yiq(jitter(pixels(), hue=1.0))
    torch.testing.assert_close(after[:, 0], before[:, 0], rtol=0, atol=1e-5)
    chroma = [torch.complex(values[:, 1], values[:, 2]) for values in (before, after)]
    turn = torch.polar(torch.tensor(1.0), torch.tensor(HUE * 2 * math.pi))
    torch.testing.assert_close(chroma[1], chroma[0] * turn, rtol=0, atol=1e-5)


def test_each_image_has_its_own_and_colours_stay_in_range() -> None:
    images = pixels(0, 1)[:1].expand(64, -1, -1, -1)
    changed = ColourJitter()(images, torch.rand(4, 64, generator=torch.Generator().manual_seed(2)))
    assert changed.flatten(1).unique(dim=0).shape[0] == 64
    assert changed.min() == 0
    assert changed.max() == 1
