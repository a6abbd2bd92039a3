"""Reads COCO's annotation files (https://cocodataset.org/#format-data) into arrays, and checks them.

Errors name the file, the item, its id and the field.
"""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from conf.schema import ConfigError
from trainers.data.coco.outlines import FARTHEST, OutlineError, outline_edges
from trainers.data.reading.image_limit import above_limit
from trainers.data.reading.regular_file import read_bytes

PARTS = ("images", "annotations", "categories")
MAX_SIDE = 65_535  # pixels, the limit of JPEG; it keeps an image below 2**32 pixels, which masks need
MAX_AREA = 1e10  # pixels², the limit of COCO's protocol
NEXT_STEP = "put the dataset's original file in place, or one in COCO's format for instances"


def read_annotations(path: Path, masks: bool, max_image_pixels: int) -> dict[str, np.ndarray]:
    """Return the arrays of `trainers.data.coco.index.CocoIndex` by name, and `notes` on objects left out.

    Images are sorted by id, labels follow the sorted category ids, and objects keep the file's order within an image.
    Objects are left out if their box has no area or is outside of the image, and with `masks` also without an outline
    (crowds need no outline). Raises ConfigError, naming the file, the item and its id, for anything that is not COCO's
    format, even if only an evaluation would use it.
    """
    content = read_json(path)
    images, annotations, categories = (Items.of(path, content, part) for part in PARTS)
    class_ids, image_ids = categories.ids(), images.ids()
    image_order, class_order = np.argsort(image_ids), np.argsort(class_ids)
    image_ids, class_ids = image_ids[image_order], class_ids[class_order]
    sizes = _sizes(images, max_image_pixels)[image_order]
    image = annotations.positions("image_id", "images", image_ids)
    labels = annotations.positions("category_id", "categories", class_ids)
    _check_ids(annotations)
    _check_areas(annotations)
    boxes, usable = _boxes(annotations, sizes[image])
    crowd = _crowds(annotations)
    edges, edge_starts = _edges(annotations, crowd, sizes[image], masks)
    outlined = crowd | (np.diff(edge_starts) > 0) if masks else np.ones(len(crowd), bool)
    order = np.argsort(image, kind="stable")
    order = order[(usable & outlined)[order]]
    edge_start, edges = _edges_of(order, edges, edge_starts)
    return {
        "image_ids": image_ids,
        "file_names": np.array(images.strings("file_name"))[image_order],
        "sizes": sizes.astype(np.int32),
        "object_start": _starts(np.bincount(image[order], minlength=len(image_ids))),
        "boxes": boxes[order],
        "labels": labels[order] + 1,
        "crowd": crowd[order],
        "edge_start": edge_start,
        "edges": edges,
        "class_names": np.array(categories.strings("name"))[class_order],
        "class_ids": class_ids,
        "notes": _notes(int((~usable).sum()), int((usable & ~outlined).sum())),
    }


def _check_ids(annotations: Items) -> None:
    """Check that ids, which may be missing, are whole numbers and unique."""
    first: dict[Any, int] = {}
    for position, item in enumerate(annotations.items):
        if "id" not in item:
            continue
        if type(item["id"]) is not int:
            annotations.refuse(position, "has an id that is not a whole number")
        if first.setdefault(item["id"], position) != position:
            annotations.refuse(position, f"has the id of annotations[{first[item['id']]}], expected a unique one")


def _check_areas(annotations: Items) -> None:
    for position, item in enumerate(annotations.items):
        area = item.get("area", 0)
        if not is_number(area, 0, MAX_AREA):
            annotations.refuse(position, f"has the area {area!r}, expected a number of pixels from 0 to {MAX_AREA:g}")


def _crowds(annotations: Items) -> np.ndarray:
    """Return which annotations are crowds, bool [n]; without `iscrowd` an annotation is not a crowd."""
    values = [item.get("iscrowd", 0) for item in annotations.items]
    for position, value in enumerate(values):
        if type(value) not in (int, bool) or value not in (0, 1):
            annotations.refuse(position, f"has the iscrowd {value!r}, expected 0 or 1")
    return np.array(values, bool)


def _sizes(images: Items, max_image_pixels: int) -> np.ndarray:
    """Return height and width, int64 [n, 2]."""
    sizes = np.stack([images.integers(key) for key in ("height", "width")], axis=1)
    if (bad := (sizes <= 0).any(axis=1) | (sizes > MAX_SIDE).any(axis=1)).any():
        first = int(np.argmax(bad))
        images.refuse(first, f"is {sizes[first].tolist()} pixels high and wide, expected 1 to {MAX_SIDE:,}")
    if (large := sizes.prod(axis=1) > max_image_pixels).any():
        first = int(np.argmax(large))
        images.refuse(first, above_limit(sizes[first], max_image_pixels))
    return sizes


def _boxes(annotations: Items, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return boxes clipped to their images, float32 [n, 4] x0 y0 x1 y1, and which have an area, bool [n]."""
    values = annotations.values("bbox")
    try:
        raw = np.array(values)  # This keeps the file's type: float64 would turn text into numbers.
    except ValueError:
        raw = np.zeros(0)
    if raw.shape != (len(values), 4) or raw.dtype.kind not in "if" or not (np.abs(raw) <= FARTHEST).all():
        first, box = next((at, box) for at, box in enumerate(values) if not _is_box(box))
        expected = f"four finite numbers up to {FARTHEST:,}: x, y, width, height"
        annotations.refuse(first, f"has the bbox {box!r}, expected {expected}")
    raw = raw.astype(np.float64)
    limits = sizes[:, [1, 0]]
    low, high = raw[:, :2], raw[:, :2] + raw[:, 2:]
    boxes = np.concatenate([np.clip(low, 0, limits), np.clip(high, 0, limits)], axis=1).astype(np.float32)
    sides = np.minimum(raw[:, 2:], boxes[:, 2:] - boxes[:, :2])
    return boxes, sides.min(axis=1) > 0


def _is_box(box: Any) -> bool:
    return isinstance(box, list) and len(box) == 4 and all(is_number(x, -FARTHEST, FARTHEST) for x in box)


def _edges(annotations: Items, crowd: np.ndarray, sizes: np.ndarray, masks: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return what `outline_edges` returns; without `masks` there are no edges."""
    if not masks:
        return np.zeros((0, 4), np.float32), np.zeros(len(crowd) + 1, np.int64)
    outlines = annotations.values("segmentation")
    try:
        return outline_edges(outlines, sizes, crowd)
    except OutlineError as error:
        annotations.refuse(error.position, f"has as its segmentation {error}")


def _edges_of(objects: np.ndarray, edges: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts of the edges of each of `objects`, int64 [n + 1], and these edges, object by object."""
    counts = np.diff(starts)[objects]
    new_starts = _starts(counts)
    return new_starts, edges[np.arange(new_starts[-1]) + np.repeat(starts[objects] - new_starts[:-1], counts)]


def _starts(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _notes(num_without_box: int, num_without_outline: int) -> np.ndarray:
    reasons = {
        "with a box of no area or outside of the image": num_without_box,
        "without an outline": num_without_outline,
    }
    return np.array([f"left out {count:,} objects {reason}" for reason, count in reasons.items() if count], np.str_)


def refuse(path: Path, reason: str) -> NoReturn:
    raise ConfigError(f"dataset.path: {path}: {reason}. Next: {NEXT_STEP}")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file. Raises ConfigError if it cannot be read."""
    collecting = gc.isenabled()
    gc.disable()  # It would scan millions of new lists and dicts again and again without freeing any.
    try:
        return json.loads(read_bytes(path))
    except (OSError, ValueError, RecursionError) as error:  # Decoding errors are ValueErrors.
        refuse(path, f"cannot be read as JSON ({error})")
    finally:
        if collecting:
            gc.enable()


def is_number(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value <= high  # False for NaN


@dataclass(frozen=True)
class Items:
    """A part of an annotation file: n objects with keys. All methods raise ConfigError for invalid content."""

    path: Path
    part: str  # images | annotations | categories
    items: list[dict[str, Any]]

    @classmethod
    def of(cls, path: Path, content: Any, part: str) -> Items:
        if not isinstance(content, dict) or part not in content:
            refuse(path, f"lacks the list `{part}`")
        items = content[part]
        if not isinstance(items, list) or not items:
            refuse(path, f"`{part}` is {'empty' if isinstance(items, list) else 'not a list'}")
        for position, item in enumerate(items):
            if type(item) is not dict:
                refuse(path, f"{part}[{position}] is a {type(item).__name__}, not an object with keys")
        return cls(path, part, items)

    def refuse(self, position: int, reason: str) -> NoReturn:
        item = self.items[position]
        known = f" (id {item['id']!r})" if "id" in item else ""
        refuse(self.path, f"{self.part}[{position}]{known} {reason}")

    def values(self, key: str) -> list[Any]:
        try:
            return [item[key] for item in self.items]
        except KeyError:
            self.refuse(next(at for at, item in enumerate(self.items) if key not in item), f"lacks `{key}`")

    def strings(self, key: str) -> list[str]:
        values = self.values(key)
        for position, value in enumerate(values):
            if not isinstance(value, str) or not value:
                self.refuse(position, f"has the {key} {value!r}, expected a string")
        return values

    def integers(self, key: str) -> np.ndarray:
        """Return the items' values of a key, int64 [n]."""
        values = self.values(key)
        for position, value in enumerate(values):
            if type(value) is not int or abs(value) >= 2**53:
                self.refuse(position, f"has the {key} {value!r}, expected a whole number")
        return np.array(values, np.int64)

    def ids(self) -> np.ndarray:
        """Return the items' ids, int64 [n]; they must be unique."""
        ids = self.integers("id")
        unique, counts = np.unique(ids, return_counts=True)
        if len(unique) < len(ids):
            refuse(self.path, f"`{self.part}` has the id {unique[np.argmax(counts > 1)]} more than once")
        return ids

    def positions(self, key: str, part: str, known: np.ndarray) -> np.ndarray:
        """Return the position of each item's id among the sorted ids of another part: int64 [n]."""
        ids = self.integers(key)
        positions = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        unknown = known[positions] != ids
        if unknown.any():
            first = int(np.argmax(unknown))
            self.refuse(first, f"has the {key} {ids[first]}, which is not in `{part}`")
        return positions
