"""COCO's annotation files (https://cocodataset.org/#format-data) as arrays, checked on the way."""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from conf.schema import ConfigError
from trainers.data.coco.outlines import OutlineError, outline_edges

NEXT_STEP = "put the dataset's original file in place, or one in COCO's format for instances"


def read_annotations(path: Path, masks: bool) -> dict[str, np.ndarray]:
    """The arrays of `trainers.data.coco.index.CocoIndex` by their names, and `notes` on what was left out.

    Images are sorted by id, labels follow the sorted category ids, objects lie in the file's order within an image.
    Left out are boxes without area or outside of their image, and with `masks` also objects without an outline
    (crowds need none). Raises ConfigError, naming the file and the item, where the file is anything else than COCO's.
    """
    content = _content(path)
    images, annotations, categories = (_items(path, content, key) for key in ("images", "annotations", "categories"))
    class_ids, image_ids = _ids(path, "categories", categories), _ids(path, "images", images)
    image_order, class_order = np.argsort(image_ids), np.argsort(class_ids)
    image_ids, class_ids, sizes = image_ids[image_order], class_ids[class_order], _sizes(path, images)[image_order]
    image = _positions(path, annotations, "image_id", image_ids)
    labels = _positions(path, annotations, "category_id", class_ids)
    boxes, usable = _boxes(path, annotations, sizes[image])
    crowd = np.array([bool(item.get("iscrowd", 0)) for item in annotations])
    edges, edge_starts = _edges(path, annotations, crowd, sizes[image], masks)
    outlined = crowd | (np.diff(edge_starts) > 0) if masks else np.ones(len(crowd), bool)
    order = np.argsort(image, kind="stable")
    order = order[(usable & outlined)[order]]
    num_edges = np.diff(edge_starts)[order]
    edge_start = _starts(num_edges)
    edge_of = np.arange(edge_start[-1]) + np.repeat(edge_starts[order] - edge_start[:-1], num_edges)
    return {
        "image_ids": image_ids,
        "file_names": np.array(_strings(path, "images", images, "file_name"))[image_order],
        "sizes": sizes.astype(np.int32),
        "object_start": _starts(np.bincount(image[order], minlength=len(images))),
        "boxes": boxes[order],
        "labels": labels[order] + 1,
        "crowd": crowd[order],
        "edge_start": edge_start,
        "edges": edges[edge_of],
        "class_names": np.array(_strings(path, "categories", categories, "name"))[class_order],
        "class_ids": class_ids,
        "notes": _notes(int((~usable).sum()), int((usable & ~outlined).sum())),
    }


def _refuse(path: Path, reason: str) -> NoReturn:
    raise ConfigError(f"dataset.path: {path}: {reason}; {NEXT_STEP}")


def _content(path: Path) -> Any:
    collecting = gc.isenabled()
    gc.disable()  # the collector would go through millions of new lists and dicts again and again, and free none
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:  # decoding errors are ValueErrors
        _refuse(path, f"cannot be read as JSON ({error})")
    finally:
        if collecting:
            gc.enable()


def _items(path: Path, content: Any, key: str) -> list[dict[str, Any]]:
    if not isinstance(content, dict) or key not in content:
        _refuse(path, f"lacks the list `{key}`")
    items = content[key]
    if not isinstance(items, list) or not items:
        _refuse(path, f"`{key}` is {'empty' if isinstance(items, list) else 'no list'}")
    for position, item in enumerate(items):
        if type(item) is not dict:
            _refuse(path, f"{key}[{position}] is a {type(item).__name__}, not an object with keys")
    return items


def _values(path: Path, part: str, items: Sequence[dict[str, Any]], key: str) -> list[Any]:
    try:
        return [item[key] for item in items]
    except KeyError:
        position = next(position for position, item in enumerate(items) if key not in item)
        _refuse(path, f"{part}[{position}] lacks `{key}`")


def _strings(path: Path, part: str, items: Sequence[dict[str, Any]], key: str) -> list[str]:
    values = _values(path, part, items, key)
    for position, value in enumerate(values):
        if not isinstance(value, str) or not value:
            _refuse(path, f"{part}[{position}] has the {key} {value!r}, expected a string")
    return values


def _integers(path: Path, part: str, items: Sequence[dict[str, Any]], key: str) -> np.ndarray:
    values = _values(path, part, items, key)
    for position, value in enumerate(values):
        if type(value) is not int or abs(value) >= 2**53:
            _refuse(path, f"{part}[{position}] has the {key} {value!r}, expected a whole number")
    return np.array(values, np.int64)


def _ids(path: Path, part: str, items: Sequence[dict[str, Any]]) -> np.ndarray:
    ids = _integers(path, part, items, "id")
    unique, counts = np.unique(ids, return_counts=True)
    if len(unique) < len(ids):
        _refuse(path, f"`{part}` has the id {unique[np.argmax(counts > 1)]} more than once")
    return ids


def _positions(path: Path, annotations: Sequence[dict[str, Any]], key: str, known: np.ndarray) -> np.ndarray:
    """Where among the known ids, sorted, that of each annotation is: int64 [n]."""
    ids = _integers(path, "annotations", annotations, key)
    positions = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    unknown = known[positions] != ids
    if unknown.any():
        first = int(np.argmax(unknown))
        part = {"image_id": "images", "category_id": "categories"}[key]
        _refuse(path, f"annotations[{first}] has the {key} {ids[first]}, which is none of `{part}`")
    return positions


def _sizes(path: Path, images: Sequence[dict[str, Any]]) -> np.ndarray:
    """Height and width, int64 [n, 2]."""
    sizes = np.stack([_integers(path, "images", images, key) for key in ("height", "width")], axis=1)
    if (bad := (sizes <= 0).any(axis=1)).any():
        _refuse(path, f"images[{np.argmax(bad)}] is {sizes[np.argmax(bad)].tolist()} pixels high and wide")
    return sizes


def _boxes(path: Path, annotations: Sequence[dict[str, Any]], sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Boxes clipped to their images, float32 [n, 4] x0 y0 x1 y1, and which have an area, bool [n]."""
    values = _values(path, "annotations", annotations, "bbox")
    try:
        given = np.array(values, np.float64)
    except (TypeError, ValueError):
        given = np.zeros(0)
    if given.shape != (len(values), 4) or not np.isfinite(given).all():
        first, box = next((at, box) for at, box in enumerate(values) if not _is_box(box))
        _refuse(path, f"annotations[{first}] has the bbox {box!r}, expected four finite numbers: x, y, width, height")
    limits = sizes[:, [1, 0]]
    low, high = given[:, :2], given[:, :2] + given[:, 2:]
    boxes = np.concatenate([np.clip(low, 0, limits), np.clip(high, 0, limits)], axis=1).astype(np.float32)
    sides = np.minimum(given[:, 2:], boxes[:, 2:] - boxes[:, :2])
    return boxes, sides.min(axis=1) > 0


def _is_box(box: Any) -> bool:
    return isinstance(box, list) and len(box) == 4 and all(isinstance(x, int | float) and np.isfinite(x) for x in box)


def _edges(
    path: Path, annotations: Sequence[dict[str, Any]], crowd: np.ndarray, sizes: np.ndarray, masks: bool
) -> tuple[np.ndarray, np.ndarray]:
    """As `outline_edges`; crowds have none, and without `masks` nothing has."""
    if not masks:
        return np.zeros((0, 4), np.float32), np.zeros(len(crowd) + 1, np.int64)
    outlines = _values(path, "annotations", annotations, "segmentation")
    try:
        return outline_edges([None if c else o for o, c in zip(outlines, crowd, strict=True)], sizes)
    except OutlineError as error:
        _refuse(path, f"annotations[{error.position}] has as its segmentation {error}")


def _starts(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _notes(num_without_box: int, num_without_outline: int) -> np.ndarray:
    reasons = {
        "with a box of no area or outside of the image": num_without_box,
        "without an outline": num_without_outline,
    }
    return np.array([f"left out {count:,} objects {reason}" for reason, count in reasons.items() if count], np.str_)
