"""Malformed COCO annotations and detections: refused, or evaluated as pycocotools does."""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco_mask

from conf.schema import ConfigError
from tests.trainers.coco_files import Content, polygon, random_content, write
from tests.trainers.coco_reference import by_pycocotools, ellipse
from trainers.data.coco import CocoIndex, DetectionEvaluator, load_index
from trainers.data.coco.annotations import read_json

ROWS, COLUMNS = 60, 80
PIXELS = ROWS * COLUMNS
SQUARE = polygon([10.0, 10.0, 20.0, 20.0])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for one dataset after another; its annotations are never cached."""
    root = tmp_path_factory.mktemp("malformed")
    (root / "file").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIMETRIAL_CACHE", str(root / "file" / "cache"))
        yield root


def objects(num_images: int = 3) -> Content:
    """Images of one size. Each has two objects of each of two classes; one object is a crowd."""
    content = random_content(np.random.default_rng(3), num_images, 2)
    for image in content["images"]:
        image |= {"height": ROWS, "width": COLUMNS}
    boxes = [[5.0, 5.0, 20.0, 20.0], [40.0, 5.0, 30.0, 40.0], [5.0, 30.0, 25.0, 20.0], [30.0, 20.0, 9.0, 30.0]]
    content["annotations"] = []
    for image in content["images"]:
        for label, box in zip((2, 2, 4, 4), boxes, strict=True):
            number = len(content["annotations"]) + 1
            annotation = {"id": number, "image_id": image["id"], "category_id": label, "bbox": box, "iscrowd": 0}
            content["annotations"].append(annotation | {"area": box[2] * box[3], "segmentation": [polygon(box)]})
    content["annotations"][3] |= {"iscrowd": 1, "segmentation": rle([2000, 1000, PIXELS - 3000])}
    return content


def rle(counts: Any) -> dict[str, Any]:
    return {"size": [ROWS, COLUMNS], "counts": counts}


def compressed(counts: list[int]) -> dict[str, Any]:
    return rle(coco_mask.frPyObjects(rle(counts), ROWS, COLUMNS)["counts"].decode())


def shown(index: CocoIndex, boxes: list[list[float]], seed: int = 0) -> dict[str, Any]:
    """Detections in every image and of both classes: of these boxes, moved a little, with scores of two digits."""
    rng = np.random.default_rng(seed)
    image, label, box = (
        grid.ravel() for grid in np.meshgrid(np.arange(len(index.image_ids)), (1, 2), range(len(boxes)))
    )
    places = (np.array(boxes)[box] + rng.normal(0, 1, (len(box), 4)).round(2)).astype(np.float32)
    return {
        "image_index": image,
        "boxes": places,
        "scores": rng.random(len(box)).round(2).astype(np.float32),
        "labels": label,
        "masks": [ellipse(place, ROWS, COLUMNS) for place in places],
    }


BOXES = [[5, 5, 25, 25], [40, 5, 70, 45], [5, 30, 30, 50], [30, 20, 39, 50], [20, 20, 50, 40]]
TURNED = [[25, 5, 5, 25], [5, 25, 25, 5], [25, 25, 5, 5], [10, 10, 10, 30]]  # x, y, both, and no width


def complete(content: Content) -> Content:
    """With what pycocotools fails without, or counts as no match where it is 0, and our files may lack."""
    content = copy.deepcopy(content)
    for number, annotation in enumerate(content["annotations"], start=1):
        annotation |= {"id": number, "iscrowd": annotation.get("iscrowd", 0), "area": annotation.get("area", 0)}
        outline = annotation["segmentation"]
        if isinstance(outline, list):
            outline = [part for part in outline if len(part) >= 6]
        annotation["segmentation"] = outline or rle([PIXELS])
    return content


def agree(root: Path, content: Content, boxes: list[list[float]]) -> bool:
    """Whether the file is accepted; then every figure has to be pycocotools'. A refusal has to name the file."""
    try:
        index = load_index(write(root, content, "val2017"), "val")
    except ConfigError as error:
        assert "instances_val2017.json" in str(error)  # noqa: PT017  # either is right
        assert str(error).endswith("in COCO's format for instances")  # noqa: PT017
        return False
    completed = root / "completed.json"
    completed.write_text(json.dumps(complete(content)))
    detections = shown(index, boxes)
    evaluator = DetectionEvaluator(index, ("bbox", "segm"))
    evaluator.add(**detections)
    metrics = evaluator.compute()
    for name, kind in (("box", "bbox"), ("mask", "segm")):
        mean, at_50 = by_pycocotools(index, detections, kind, completed)
        assert metrics.get(f"{name}_map", -1.0) == pytest.approx(mean, abs=1e-9), kind
        assert metrics.get(f"{name}_map_50", -1.0) == pytest.approx(at_50, abs=1e-9), kind
    return True


ANYTHING = st.sampled_from(
    [None, True, "3", "", 1.5, -1, 0, 10**12, 10**400, math.nan, math.inf, [], {}, [[]], [1], {"a": 1}]
)
RUNS = st.lists(st.sampled_from([0, 0, 1, 59, 60, 300, 700, 2000]), min_size=1, max_size=6)
OUTLINES = st.one_of(
    st.lists(st.lists(st.integers(-100, 200), min_size=6, max_size=13), max_size=3),  # odd, crossing, outside
    st.lists(st.tuples(*[st.integers(-50, 100)] * 8).map(list), min_size=1, max_size=3),
    st.builds(lambda short: [short, SQUARE], st.sampled_from([[], [1, 1], [3, 3, 9, 9]])),
    st.builds(lambda number: [[*SQUARE, number, 1]], st.sampled_from([1e6, 1e9, 1e300, -(10**400), "7", True, None])),
    st.builds(lambda runs: rle([*runs, PIXELS - sum(runs)]), RUNS),  # sometimes the last is negative
    st.builds(rle, RUNS),  # too short or too long
    st.builds(lambda runs: compressed([*runs, PIXELS - min(sum(runs), PIXELS)]), RUNS),
    st.builds(compressed, RUNS),
    st.builds(rle, st.sampled_from(["", "~", "0", "é", None, {}, 5, [2**62] * 4, [PIXELS + 0.0], [[PIXELS]], [True]])),
    st.builds(lambda size: rle([PIXELS]) | {"size": size}, st.sampled_from([None, [COLUMNS, ROWS], [ROWS], "60", 60])),
)  # fmt: skip
SIDES = st.sampled_from([-30, 0, 0.5, 5, 20, 60, 1e5, 1e7, 1e300])
CHANGES = st.one_of(
    st.tuples(st.just("annotations"), st.just("segmentation"), OUTLINES),
    st.tuples(st.just("annotations"), st.just("bbox"), st.lists(SIDES, min_size=4, max_size=4)),
    st.tuples(st.just("annotations"), st.just("bbox"), st.lists(ANYTHING, max_size=5)),
    st.tuples(st.just("annotations"), st.just("area"), st.sampled_from([-1.0, 0, 1e10, 1e11])),
    st.tuples(st.just("annotations"), st.sampled_from(["id", "image_id", "category_id"]), st.integers(-1, 7)),
    st.tuples(
        st.just("annotations"),
        st.sampled_from(["id", "image_id", "category_id", "iscrowd", "area", "bbox", "segmentation"]),
        st.one_of(ANYTHING, st.just("left out")),
    ),
    st.tuples(st.just("annotations"), st.just("iscrowd"), st.sampled_from([0, 1, 1, True, 2])),
    st.tuples(st.just("images"), st.sampled_from(["id", "height", "width", "file_name"]), ANYTHING),
    st.tuples(st.just("categories"), st.sampled_from(["id", "name"]), ANYTHING),
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(CHANGES, st.integers(0, 11)), min_size=1, max_size=2))
def test_a_malformed_file_is_refused_or_evaluated_as_pycocotools_does(
    root: Path, changes: list[tuple[tuple[str, str, Any], int]]
) -> None:
    content = objects()
    for (part, key, value), at in changes:
        item = content[part][at % len(content[part])]
        if value == "left out":
            item.pop(key, None)
        else:
            item[key] = value
    agree(root, content, BOXES)


SHORT = rle([0, 100])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iscrowd": 1, "segmentation": SHORT}, "of 100 pixels in an image of 4800"),
        ({"iscrowd": 1, "segmentation": rle([0, PIXELS + 1])}, "of 4801 pixels in an image of 4800"),
        ({"iscrowd": 1, "segmentation": rle([PIXELS + 1, -1])}, "a run of -1 pixels"),
        ({"iscrowd": 1, "segmentation": rle([2**62] * 4)}, "of 4611686018427387904 pixels in an image of 4800"),
        ({"iscrowd": 1, "segmentation": [SQUARE[:7]]}, "a polygon of 7 numbers, expected x and y"),
        ({"segmentation": [SQUARE[:7]]}, "a polygon of 7 numbers, expected x and y"),
        ({"segmentation": [[*SQUARE, 1e9, 1]]}, "not within 1,000,000 pixels"),
        ({"iscrowd": None}, "has the iscrowd None, expected 0 or 1"),
        ({"iscrowd": 2}, "has the iscrowd 2, expected 0 or 1"),
        ({"bbox": ["1", "2", "3", "4"]}, r"has the bbox \['1', .*expected four finite numbers"),
        ({"bbox": [1, 2, 3, 10**400]}, "expected four finite numbers up to 1,000,000"),
        ({"area": None}, "has the area None, expected a number of pixels"),
        ({"area": -4.0}, r"has the area -4.0, expected a number of pixels"),
    ],
)
def test_what_an_evaluation_would_come_upon_is_refused_with_the_annotations_id(
    root: Path, change: dict[str, Any], message: str
) -> None:
    content = objects()
    content["annotations"][1] |= {"id": 77, **change}
    with pytest.raises(ConfigError, match=r"instances_val2017.json: annotations\[1\] \(id 77\) .*" + message):
        load_index(write(root, content, "val2017"), "val")


def test_keys_that_the_library_uses_for_itself_are_not_the_file_s_to_set(root: Path) -> None:
    content = objects()
    for annotation in content["annotations"]:
        annotation |= {"rle": SHORT, "ignore": 1, "lvis_mark": True, "score": 3.0}
    assert agree(root, content, BOXES)


def test_two_annotations_of_one_id_are_refused(root: Path) -> None:
    content = objects()
    content["annotations"][4]["id"] = content["annotations"][1]["id"] = 77
    with pytest.raises(ConfigError, match=r"annotations\[4\] \(id 77\) has the id of annotations\[1\]"):
        load_index(write(root, content, "val2017"), "val")


@pytest.mark.parametrize(("height", "width"), [(10**12, 80), (60, 65_536), (-60, 80)])
def test_images_of_no_possible_size_are_refused(root: Path, height: int, width: int) -> None:
    content = objects()
    content["images"][1] |= {"height": height, "width": width}
    with pytest.raises(ConfigError, match=rf"images\[1\] \(id 6\) is \[{height}, {width}\] pixels .*1 to 65,535"):
        load_index(write(root, content, "val2017"), "val")


def test_an_image_of_more_pixels_than_are_allowed_is_refused(root: Path) -> None:
    path = write(root, objects(), "val2017")
    assert len(load_index(path, "val", max_image_pixels=PIXELS).image_ids) == 3
    with pytest.raises(ConfigError, match=r"images\[0\] \(id 3\) is 60 pixels high .*dataset.max_image_pixels=4799"):
        load_index(path, "val", max_image_pixels=PIXELS - 1)


def test_a_pipe_in_place_of_annotations_is_refused(tmp_path: Path) -> None:
    (tmp_path / "instances.json").symlink_to(os.devnull)
    with pytest.raises(ConfigError, match=r"instances.json: cannot be read as JSON \(.*is not a regular file"):
        read_json(tmp_path / "instances.json")


def test_what_may_be_left_out_is(root: Path) -> None:
    content = objects()
    for key, at in (("id", 0), ("iscrowd", 1), ("area", 2)):
        del content["annotations"][at][key]
    content["annotations"][4]["id"] = 0
    content["annotations"][5]["segmentation"] = [[3.0, 3.0, 9.0, 9.0], SQUARE]
    assert agree(root, content, BOXES)


def test_boxes_that_are_turned_over_count_as_pycocotools_has_it(root: Path) -> None:
    assert agree(root, objects(), [*BOXES, *TURNED])
    content = objects()
    content["annotations"][0]["bbox"] = [25.0, 5.0, -20.0, 20.0]
    assert agree(root, content, [*BOXES, *TURNED])


@pytest.mark.parametrize("boxes", [BOXES, []], ids=["detections", "no detections"])
def test_crowds_alone_have_no_average_precision(root: Path, boxes: list[list[float]]) -> None:
    content = objects()
    for annotation in content["annotations"]:
        annotation["iscrowd"] = 1
    assert not boxes or agree(root, content, boxes)
    evaluator = DetectionEvaluator(load_index(write(root, content, "val2017"), "val"), ("bbox", "segm"))
    if boxes:
        evaluator.add(**shown(evaluator.index, boxes))
    assert evaluator.compute() == {}


def test_outlines_that_nobody_reads_may_be_anything(root: Path) -> None:
    """Boxes alone are learnt and evaluated: pycocotools looks at no outline then, either."""
    content = objects()
    content["annotations"][0]["segmentation"] = [1, 2]
    content["annotations"][3]["segmentation"] = SHORT
    index = load_index(write(root, content, "val2017"), "val", masks=False)
    detections = shown(index, BOXES)
    evaluator = DetectionEvaluator(index)
    evaluator.add(**{key: value for key, value in detections.items() if key != "masks"})
    mean, at_50 = by_pycocotools(index, detections, "bbox")
    assert evaluator.compute() == pytest.approx({"box_map": mean, "box_map_50": at_50}, abs=1e-9)


@pytest.mark.parametrize(("key", "value"), [("scores", math.nan), ("scores", math.inf), ("boxes", math.nan)])
def test_detections_that_are_no_numbers_are_refused_with_their_image(root: Path, key: str, value: float) -> None:
    index = load_index(write(root, objects(), "val2017"), "val")
    detections = shown(index, BOXES)
    detections[key][-1] = value
    message = rf"instances_val2017.json: image 9 \(3\.jpg\) has a detection .*{value}.*optimizer.lr"
    with pytest.raises(FloatingPointError, match=message):
        DetectionEvaluator(index).add(**detections)
