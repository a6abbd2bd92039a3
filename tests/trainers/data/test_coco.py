"""COCO's annotations: read as arrays, cached, and refused by name where they are not what they should be."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocotools import mask as coco_mask

from conf.schema import ConfigError
from tests.support import forked
from tests.support.commands import HANGS_SEC, ROOT, environment
from tests.trainers.coco_files import Content, content, polygon, write
from trainers.data.cached import arrays
from trainers.data.coco import index
from trainers.data.coco.index import CocoIndex, load_index
from trainers.data.coco.outlines import OutlineError, decompress, outline_edges


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TIMETRIAL_CACHE", str(folder))
    return folder


def load(tmp_path: Path, what: Any, masks: bool = True) -> CocoIndex:
    return load_index(write(tmp_path / "coco", what), "train", masks=masks)


def equal(a: CocoIndex, b: CocoIndex) -> bool:
    return all(np.array_equal(value, b.__dict__[name]) for name, value in a.__dict__.items())


def test_images_classes_and_objects_are_in_order(tmp_path: Path) -> None:
    index = load(tmp_path, content())
    assert index.folder == tmp_path / "coco" / "train2017"
    assert index.annotations == tmp_path / "coco" / "annotations" / "instances_train2017.json"
    assert index.image_ids.tolist() == [3, 5, 7]
    assert index.file_names.tolist() == [f"{i:012d}.jpg" for i in (3, 5, 7)]
    assert index.sizes.tolist() == [[12, 16]] * 3
    assert index.object_start.tolist() == [0, 1, 2, 4]
    assert index.boxes.tolist() == [[10, 0, 15.5, 6.25], [0, 0, 8, 8], [2, 3, 6, 8], [1, 1, 3, 3]]
    assert index.labels.tolist() == [1, 1, 2, 1]
    assert (index.class_names, index.class_ids) == (("a", "b"), (2, 9))
    assert index.crowd.tolist() == [False, True, False, False]
    assert index.edge_start.tolist() == [0, 4, 4, 8, 12]
    assert index.edges[4:8].tolist() == [[2, 3, 6, 3], [6, 3, 6, 8], [6, 8, 2, 8], [2, 8, 2, 3]]
    assert index.trainable().tolist() == [0, 2]  # image 5 has a crowd only
    assert index.notes == ()
    dtypes = {name: getattr(index, name).dtype.name for name in ("boxes", "edges", "labels", "sizes", "edge_start")}
    assert dtypes == {
        "boxes": "float32",
        "edges": "float32",
        "labels": "int64",
        "sizes": "int32",
        "edge_start": "int64",
    }


def test_without_masks_nothing_has_edges_and_no_outline_is_needed(tmp_path: Path) -> None:
    what = content()
    for annotation in what["annotations"]:
        del annotation["segmentation"]
    index = load(tmp_path, what, masks=False)
    assert len(index.boxes) == 4
    assert index.edges.shape == (0, 4)
    assert index.edge_start.tolist() == [0] * 5


def test_boxes_are_clipped_and_what_has_no_area_is_left_out(tmp_path: Path) -> None:
    what = content()
    boxes = [[-2.0, 3, 4, 5], [10, 0, 0, 6], [20, 20, 5, 5], [14, 10, 9, 9]]
    for annotation, box in zip(what["annotations"], boxes, strict=True):
        annotation["bbox"] = box
    index = load(tmp_path, what)
    assert index.boxes.tolist() == [[0, 3, 2, 8], [14, 10, 16, 12]]
    assert index.notes == ("left out 2 objects with a box of no area or outside of the image",)
    assert index.trainable().tolist() == [2]
    what["annotations"][1]["bbox"] = [10, 5, 3, -2]
    assert len(load(tmp_path / "negative", what).boxes) == 2


def test_parts_without_area_are_left_out_and_objects_without_parts(tmp_path: Path) -> None:
    what = content()
    what["annotations"][0]["segmentation"].append([1.0, 1.0, 2.0, 2.0])  # two points
    what["annotations"][1]["segmentation"] = [[1.0, 1.0, 2.0, 2.0]]
    what["annotations"][3]["segmentation"] = []
    index = load(tmp_path, what)
    assert index.labels.tolist() == [1, 2]
    assert index.edge_start.tolist() == [0, 0, 4]
    assert index.notes == ("left out 2 objects without an outline",)
    assert len(load(tmp_path, what, masks=False).labels) == 4


def test_images_in_folders_are_found(tmp_path: Path) -> None:
    what = content()
    what["images"][0]["file_name"] = "part/7.jpg"
    (tmp_path / "coco" / "train2017" / "part").mkdir(parents=True)
    assert load(tmp_path, what).file_names[2] == "part/7.jpg"


def item(part: str, position: int, key: str, value: Any) -> Callable[[Content], None]:
    return lambda what: what[part][position].__setitem__(key, value)


def without(part: str, key: str) -> Callable[[Content], None]:
    return lambda what: what[part][1].__delitem__(key)


RLE = {"size": [12, 16], "counts": [0, 100, 92]}
BAD = [
    (lambda what: what.pop("annotations"), "lacks the list `annotations`"),
    (lambda what: what.update(annotations=[]), "`annotations` is empty"),
    (lambda what: what.update(images=[]), "`images` is empty"),
    (lambda what: what.update(images={"7": {}}), "`images` is not a list"),
    (lambda what: what["images"].append("7.jpg"), r"images\[3\] is a str"),
    (without("images", "file_name"), r"images\[1\] \(id 3\) lacks `file_name`"),
    (item("images", 1, "file_name", None), r"images\[1\] \(id 3\) has the file_name None"),
    (item("images", 1, "height", 0), r"images\[1\] \(id 3\) is \[0, 16\] pixels"),
    (item("images", 1, "width", 16.5), r"images\[1\] \(id 3\) has the width 16.5"),
    (item("images", 1, "id", 7), "`images` has the id 7 more than once"),
    (item("images", 1, "id", "3"), r"images\[1\] \(id '3'\) has the id '3'"),
    (item("categories", 1, "id", 9), "`categories` has the id 9 more than once"),
    (without("categories", "name"), r"categories\[1\] \(id 2\) lacks `name`"),
    (without("annotations", "bbox"), r"annotations\[1\] \(id 2\) lacks `bbox`"),
    (without("annotations", "segmentation"), r"annotations\[1\] \(id 2\) lacks `segmentation`"),
    (item("annotations", 1, "image_id", 4), r"annotations\[1\] \(id 2\) has the image_id 4, which is not in `images`"),
    (item("annotations", 1, "category_id", 1), r"annotations\[1\] \(id 2\) has the category_id 1, which is not in"),
    (item("annotations", 1, "category_id", True), r"annotations\[1\] \(id 2\) has the category_id True"),
    (item("annotations", 1, "bbox", [1, 2, 3]), r"annotations\[1\] \(id 2\) has the bbox \[1, 2, 3\]"),
    (item("annotations", 1, "bbox", [1, 2, 3, float("nan")]), r"annotations\[1\] \(id 2\) has the bbox .*nan"),
    (item("annotations", 1, "bbox", [1, 2, 3, None]), r"annotations\[1\] \(id 2\) has the bbox .*None"),
    (item("annotations", 1, "bbox", ["a", "b", "c", "d"]), r"annotations\[1\] \(id 2\) has the bbox"),
    (item("annotations", 1, "segmentation", polygon([1, 1, 2, 2])), r"annotations\[1\] \(id 2\).*is a int, not a list"),
    (
        item("annotations", 1, "segmentation", [[1, 1, 2, "x", 3, 3]]),
        r"annotations\[1\] \(id 2\).*something else than numbers",
    ),
    (item("annotations", 1, "segmentation", [[1, 1, 2, float("inf"), 3, 3]]), r"annotations\[1\] \(id 2\).*finite"),
    (item("annotations", 1, "segmentation", "outline"), r"annotations\[1\] \(id 2\).*neither a list of polygons"),
    (
        item("annotations", 1, "segmentation", {**RLE, "size": [16, 12]}),
        r"annotations\[1\] \(id 2\).*of size \[16, 12\]",
    ),
    (
        item("annotations", 1, "segmentation", {**RLE, "counts": [0, 9]}),
        r"annotations\[1\] \(id 2\).*9 pixels in an image of 192",
    ),
    (item("annotations", 1, "segmentation", {**RLE, "counts": "Zürich"}), r"annotations\[1\] \(id 2\).*no runs"),
    (item("annotations", 1, "segmentation", {**RLE, "counts": "~~"}), r"annotations\[1\] \(id 2\).*no runs"),
]


@pytest.mark.parametrize(("spoil", "message"), BAD)
def test_bad_annotations_are_refused_by_name(tmp_path: Path, spoil: Callable[[Content], None], message: str) -> None:
    what = content()
    spoil(what)
    with pytest.raises(ConfigError, match=r"instances_train2017.json: " + message):
        load(tmp_path, what)


@pytest.mark.parametrize("text", ["", "{", "[]", "\x80", '{"images": 1}', "[" * 100_000])
def test_a_file_that_is_not_coco_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"instances_train2017.json: .*put the dataset's original file"):
        load(tmp_path, text)


def test_a_pipe_in_place_of_the_annotations_is_not_waited_for(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "coco", content()))
    (file := path / "annotations/instances_train2017.json").unlink()
    os.mkfifo(file)
    with pytest.raises(ConfigError, match=r"cannot be read as JSON \(.*is not a regular file"):
        load_index(str(path), "train")


def test_missing_images_are_counted_and_named(tmp_path: Path) -> None:
    path = write(tmp_path / "coco", content())
    (tmp_path / "coco" / "train2017" / "000000000005.jpg").unlink()
    with pytest.raises(ConfigError, match=r"lacks 1 of the 3 images .*\(000000000005.jpg\)"):
        load_index(path, "train")


def test_a_wrong_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset.path=.*is not a folder"):
        load_index(str(tmp_path / "none"), "train")
    with pytest.raises(ConfigError, match=r"dataset.path=.*has no annotations/instances_train"):
        load_index(str(tmp_path), "train")
    path = write(tmp_path / "coco", content(), "val2017")
    with pytest.raises(ConfigError, match=r"lacks annotations/instances_train2017.json and train2017"):
        load_index(path, "train")


def test_the_year_is_needed_where_there_are_two(tmp_path: Path) -> None:
    path = write(tmp_path / "coco", content())
    assert load_index(path, "train", 2017).folder.name == "train2017"
    with pytest.raises(ConfigError, match=r"dataset.year=2014: .*\[2017\]"):
        load_index(path, "train", 2014)
    write(tmp_path / "coco", content(), "val2014")
    with pytest.raises(ConfigError, match=r"dataset.year: .*\[2014, 2017\]"):
        load_index(path, "train")
    assert load_index(path, "val", 2014).folder.name == "val2014"


def fail(*_: object) -> dict[str, np.ndarray]:
    raise AssertionError("parsed again")


def test_annotations_are_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MAPPED_BYTES", 128)
    first = load(tmp_path, content())
    assert isinstance(first.edges, np.memmap)
    with monkeypatch.context() as patch:
        patch.setattr(index, "read_annotations", fail)
        assert equal(load_index(str(tmp_path / "coco"), "train"), first)
        with pytest.raises(AssertionError, match="parsed again"):
            load_index(str(tmp_path / "coco"), "train", masks=False)
    what = content()
    what["categories"][0]["name"] = "c"
    assert load(tmp_path, what).class_names == ("a", "c")  # The file has the same size, but is newer.
    assert first.edges[4:8].tolist()[0] == [2, 3, 6, 3]  # what is mapped already stays


def test_a_damaged_cache_is_made_again(tmp_path: Path, cache: Path) -> None:
    first = load(tmp_path, content())
    files = list(cache.rglob("edges.npy"))
    assert len(files) == 1
    files[0].write_bytes(b"")
    assert equal(load_index(str(tmp_path / "coco"), "train"), first)
    assert files[0].stat().st_size > 0


def test_no_cache_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "file" / "cache"))
    assert len(load(tmp_path, content()).image_ids) == 3


LOAD_AND_NOTE = """
import sys
from trainers.data.coco import index as coco
read = coco.read_annotations
def noted(*arguments):
    print("parsed")
    return read(*arguments)
coco.read_annotations = noted
print(len(coco.load_index(sys.argv[1], "train").image_ids), "images")
"""


@pytest.mark.slow
def test_of_processes_that_start_together_one_parses(tmp_path: Path) -> None:
    path = write(tmp_path / "coco", content())
    (script := tmp_path / "load.py").write_text(LOAD_AND_NOTE)
    processes = [forked.Forked([path], ROOT, environment(), script=str(script)) for _ in range(3)]
    answers = [process.communicate(timeout=HANGS_SEC)[0] for process in processes]
    assert sorted(answers) == ["3 images\n", "3 images\n", "parsed\n3 images\n"]


def winding(edges: np.ndarray, height: int, width: int) -> np.ndarray:
    """Winding numbers at the centres of pixels, by the definition: signed crossings of a ray to the left."""
    numbers = np.zeros((height, width), int)
    for x0, y0, x1, y1 in edges:
        for row in range(height):
            direction = int(y0 <= row + 0.5) - int(y1 <= row + 0.5)
            if direction:
                crossing = x0 + (row + 0.5 - y0) / (y1 - y0) * (x1 - x0)
                numbers[row, crossing <= np.arange(width) + 0.5] += direction
    return numbers


MASKS = st.tuples(st.integers(1, 7), st.integers(1, 7)).flatmap(
    lambda size: st.lists(
        st.lists(st.booleans(), min_size=size[1], max_size=size[1]), min_size=size[0], max_size=size[0]
    )
)


@given(MASKS)
def test_run_lengths_become_their_pixels_borders(rows: list[list[bool]]) -> None:
    mask = np.array(rows)
    compressed = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    runs = decompress(compressed["counts"])
    outlines = [
        {"size": list(mask.shape), "counts": counts} for counts in (runs.tolist(), compressed["counts"].decode())
    ]
    edges, starts = outline_edges([*outlines, None], np.array([mask.shape] * 3))
    assert np.array_equal(winding(edges[: starts[1]], *mask.shape) != 0, mask)
    assert np.array_equal(edges[: starts[1]], edges[starts[1] : starts[2]])
    assert starts[3] == starts[2]


@given(st.lists(st.integers(0, 70_000), min_size=1, max_size=12))
def test_run_lengths_are_decompressed(runs: list[int]) -> None:
    total = sum(runs)
    if total:
        compressed = coco_mask.frPyObjects({"size": [total, 1], "counts": runs}, total, 1)["counts"]
        assert decompress(compressed).tolist() == runs


def test_parts_go_round_alike_so_that_their_union_is_inside() -> None:
    forward, overlapping = polygon([1, 1, 5, 5]), polygon([3, 3, 5, 5])
    backward = np.array(overlapping).reshape(4, 2)[::-1].flatten().tolist()
    edges, _ = outline_edges([[forward, backward], [backward], [forward, overlapping]], np.full((3, 2), 10))
    inside = winding(edges[:8], 10, 10) != 0
    assert inside.sum() == 5 * 5 * 2 - 3 * 3
    assert inside[3, 3]
    assert np.array_equal(winding(edges[12:], 10, 10) != 0, inside)


def test_outlines_keep_their_order_where_kinds_are_mixed() -> None:
    rle = {"size": [4, 4], "counts": [5, 2, 9]}
    edges, starts = outline_edges([rle, [polygon([0, 0, 2, 2])], rle], np.full((3, 2), 4))
    assert starts.tolist() == [0, 2, 6, 8]
    assert edges[:2].tolist() == edges[6:].tolist() == [[1, 1, 1, 3], [2, 3, 2, 1]]
    assert edges[2:6].tolist() == [[0, 0, 2, 0], [2, 0, 2, 2], [2, 2, 0, 2], [0, 2, 0, 0]]


def test_an_outline_error_tells_whose(tmp_path: Path) -> None:
    with pytest.raises(OutlineError) as error:
        outline_edges([[polygon([0, 0, 2, 2])], [[0, 0, 1, 1, 2, None]]], np.full((2, 2), 4))
    assert error.value.position == 1
