"""Augmentation: shape and type stay, nothing asked for changes nothing, and what is asked for happens."""

import math

import pytest
import torch

from trainers.models.vgg import DEGREES, SHIFT, ZOOM, augment, warp


def pictures(num_images: int = 16, height: int = 28, width: int = 28) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (num_images, 1, height, width), dtype=torch.uint8, generator=generator)


def warp_one(image: torch.Tensor, angle: float = 0.0, down: float = 0.0, right: float = 0.0, zoom: float = 1.0):
    return warp(image[None, None], torch.tensor([angle]), torch.tensor([[down, right]]), torch.tensor([zoom]))[0, 0]


@pytest.mark.parametrize(("height", "width"), [(28, 28), (8, 8), (8, 12)])
def test_identity_parameters_change_nothing(height: int, width: int) -> None:
    images = pictures(height=height, width=width)
    zeros = torch.zeros(len(images))
    assert torch.equal(warp(images, zeros, torch.zeros(len(images), 2), zeros + 1), images)


@pytest.mark.parametrize(("height", "width"), [(28, 28), (8, 8)])
def test_keeps_shape_and_type_and_changes_every_image(height: int, width: int) -> None:
    images = pictures(height=height, width=width)
    torch.manual_seed(1)
    result = augment(images)
    assert (result.shape, result.dtype) == (images.shape, torch.uint8)
    assert (result != images).flatten(1).any(dim=1).all()


def test_images_get_parameters_of_their_own_from_the_global_generator() -> None:
    images = pictures(1).expand(16, 1, 28, 28)
    torch.manual_seed(1)
    first, second = augment(images), augment(images)
    torch.manual_seed(1)
    assert torch.equal(augment(images), first)
    assert not torch.equal(first, second)
    assert len({image.numpy().tobytes() for image in first}) == 16


def test_shift_moves_down_and_right_and_fills_with_zero() -> None:
    image = pictures(1, 8, 12)[0, 0]
    expected = torch.zeros_like(image)
    expected[2:, 3:] = image[:-2, :-3]
    assert torch.equal(warp_one(image, down=2 / 8, right=3 / 12), expected)


def test_rotation_by_a_quarter_turn_is_counter_clockwise() -> None:
    image = pictures(1, 8, 8)[0, 0]
    assert torch.equal(warp_one(image, angle=math.pi / 2), torch.rot90(image))


def test_rotation_of_oblong_images_does_not_shear() -> None:
    image = torch.zeros(8, 16, dtype=torch.uint8)
    image[3:5, 6:10] = 255  # a bar of 2x4 about the centre
    expected = torch.zeros_like(image)
    expected[2:6, 7:9] = 255
    assert torch.equal(warp_one(image, angle=math.pi / 2), expected)


def test_zoom_magnifies() -> None:
    image = torch.zeros(8, 8, dtype=torch.uint8)
    image[3:5, 3:5] = 255
    assert warp_one(image, zoom=2.0).sum() > 3 * image.sum() // 2
    assert warp_one(image, zoom=0.5).sum() < image.sum()


def test_parameters_stay_in_the_documented_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def capture(images: torch.Tensor, angle: torch.Tensor, shift: torch.Tensor, zoom: torch.Tensor) -> torch.Tensor:
        seen.update(angle=angle, shift=shift, zoom=zoom)
        return images

    monkeypatch.setattr("trainers.models.vgg.warp", capture)
    torch.manual_seed(1)
    augment(torch.zeros(4000, 1, 4, 4, dtype=torch.uint8))
    angle = torch.rad2deg(seen["angle"])
    for values, low, high in (
        (angle, -DEGREES, DEGREES),
        (seen["shift"], -SHIFT, SHIFT),
        (seen["zoom"], 1 - ZOOM, 1 + ZOOM),
    ):
        span = high - low
        assert low <= values.min() < low + span / 100
        assert high - span / 100 < values.max() <= high
