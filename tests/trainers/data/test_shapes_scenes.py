"""The scenes of the generated data sets: as varied as COCO, and drawn and annotated as they look."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from pycocotools import mask as coco_mask
from scipy import ndimage

from trainers.data.shapes.generated_files import CATEGORY_IDS, annotate
from trainers.data.shapes.rasterizing import CLASS_NAMES, SHAPES, coverage, pose, signed_area, simplify, trace
from trainers.data.shapes.scenes import Scene, detection_scene

# pycocotools 2.0.11 hands NumPy 2 an array type of before it.
OLD_ARRAY = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [detection_scene("val", index) for index in range(100)]


@pytest.mark.slow
def test_scenes_are_as_varied_as_coco(scenes: list[Scene]) -> None:
    counts = [len(scene.things) for scene in scenes]
    assert 4 < np.mean(counts) < 5
    assert min(counts) == 0
    objects = [annotation for scene in scenes for annotation in annotate(scene)]
    areas = np.array([annotation["area"] for annotation in objects])
    shares = [np.mean(areas < 32**2), np.mean((areas >= 32**2) & (areas < 96**2)), np.mean(areas >= 96**2)]
    assert min(shares) > 0.1
    assert {annotation["category_id"] for annotation in objects} == set(CATEGORY_IDS)
    assert 1 <= sum(annotation["iscrowd"] for annotation in objects) <= 12
    assert {scene.height > scene.width for scene in scenes} == {True, False}
    assert any(len(annotation["segmentation"]) > 1 for annotation in objects if not annotation["iscrowd"])


@OLD_ARRAY
def test_masks_are_the_visible_pixels(scenes: list[Scene]) -> None:
    overlaps = []
    for scene in scenes[:50]:
        for number, (thing, annotation) in enumerate(zip(scene.things, annotate(scene), strict=True), start=1):
            visible = scene.visible(number)
            segmentation = annotation["segmentation"]
            encoded = coco_mask.frPyObjects(segmentation, scene.height, scene.width)
            decoded = coco_mask.decode(encoded if thing.is_crowd else coco_mask.merge(encoded)).astype(bool)
            overlaps.append((decoded & visible).sum() / (decoded | visible).sum())
            assert overlaps[-1] == 1 or not thing.is_crowd
            assert annotation["area"] == visible.sum()
            x, y, width, height = annotation["bbox"]
            box = np.zeros_like(visible)
            box[y : y + height, x : x + width] = True
            assert not (visible & ~box).any()
            assert visible[y : y + height, [x, x + width - 1]].any(0).all()
            assert visible[[y, y + height - 1], x : x + width].any(1).all()
    assert min(overlaps) > 0.9
    assert np.mean(overlaps) > 0.98


def test_colours_tell_nothing_about_the_class(scenes: list[Scene]) -> None:
    """The nearest mean of colour and contrast is right about as often as a guess."""
    features, labels = [], []
    for scene in scenes:
        for number, thing in enumerate(scene.things, start=1):
            seen = scene.pixels[scene.visible(number)]
            if not thing.is_crowd:
                features.append([*seen.mean(0), *seen.std(0)])
                labels.append(thing.shape)
    x, y = np.array(features), np.array(labels)
    x = (x - x.mean(0)) / x.std(0)
    half = len(y) // 2
    means = np.stack([x[:half][y[:half] == label].mean(0) for label in range(len(SHAPES))])
    guess = ((x[half:, None] - means) ** 2).sum(2).argmin(1)
    assert np.mean(guess == y[half:]) < 2.0 / len(SHAPES)


@given(
    st.sampled_from(CLASS_NAMES),
    st.integers(0, 2**32 - 1),
    st.floats(8, 60),
    st.tuples(st.floats(-40, 100), st.floats(-40, 100)),
)
def test_coverage_is_the_area_in_the_picture(name: str, seed: int, extent: float, centre: tuple[float, float]) -> None:
    corners = pose(np.random.RandomState(seed), SHAPES[name], extent, centre)
    assert np.abs(np.ptp(corners, axis=0).max() - extent) <= 0.125
    roomy = coverage(corners + 100, 300, 300)[1]  # nothing of it lies outside
    assert roomy.sum() == pytest.approx(abs(signed_area(corners)), abs=0.3 * extent)  # a quarter of a row at both ends
    assert 0 <= roomy.min() <= roomy.max() <= 1
    whole, clipped = np.zeros((300, 300)), np.zeros((70, 50))
    for canvas, moved in ((whole, corners + 100), (clipped, corners)):
        box, cover = coverage(moved, *canvas.shape)
        canvas[box] = cover
    # But for one step of the rounding: 100 pixels on, the corners are not quite the same numbers.
    assert np.abs(whole[100:170, 100:150] - clipped).max() <= 1 / 1024


def test_both_halves_of_an_outline_that_crosses_itself_are_covered() -> None:
    hourglass = np.array([(0, 0), (4, 0), (0, 4), (4, 4)]) + 0.5  # The halves meet within a row of pixels.
    assert coverage(hourglass, 6, 6)[1].sum() == pytest.approx(8, abs=0.05)
    assert coverage(hourglass + 10, 6, 6)[1].size == 0, "all of it lies outside"


@given(arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=9)))
def test_every_part_and_hole_of_a_mask_has_its_outline(mask: np.ndarray) -> None:
    outlines = trace(mask)
    _, num_parts = ndimage.label(mask)  # 4-connected, and so the holes are 8-connected
    outside = np.pad(~mask, 1, constant_values=True)
    num_holes = ndimage.label(outside, np.ones((3, 3)))[1] - 1
    areas = [signed_area(outline) for outline in outlines]
    assert sum(area > 0 for area in areas) == num_parts
    assert sum(area < 0 for area in areas) == num_holes
    padded = np.pad(mask, 1)
    num_sides = sum(np.sum(np.diff(padded.astype(int), axis=axis) != 0) for axis in (0, 1))
    assert sum(map(len, outlines)) == num_sides
    # An outline through the middles of a pixel's sides cuts the corners off: an eighth of a pixel each.
    if num_parts == 1 and mask.all():
        assert areas == [mask.size - 0.5]


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.6, 2.0]))
def test_simplified_outlines_stay_near(seed: int, tolerance: float) -> None:
    rng = np.random.RandomState(seed)
    _, cover = coverage(pose(rng, SHAPES["crescent"], 40, (20, 20)), 40, 40)
    outline = max(trace(cover >= 0.5), key=len)
    kept = simplify(outline, tolerance)
    assert 3 <= len(kept) < len(outline) / 2
    a, b = kept, np.roll(kept, -1, 0)
    along = np.einsum("pei,ei->pe", outline[:, None] - a, b - a) / ((b - a) ** 2).sum(1)
    nearest = a + np.clip(along, 0, 1)[..., None] * (b - a)
    assert np.sqrt(((outline[:, None] - nearest) ** 2).sum(2)).min(1).max() <= tolerance + 1e-9
