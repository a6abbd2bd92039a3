"""COCO's object detection datasets of 2014 and 2017, and other datasets in the same layout and format.

Source: T.-Y. Lin et al. 2014, arXiv:1405.0312, https://cocodataset.org/#download. The folder holds
`annotations/instances_train2017.json` and `annotations/instances_val2017.json`, and the images in `train2017` and
`val2017`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from conf.schema import ConfigError
from trainers.data.cached import cached_arrays
from trainers.data.coco.annotations import read_annotations
from trainers.data.reading.folder_index import resolved
from trainers.data.reading.image_limit import MAX_IMAGE_PIXELS

Split = Literal["train", "val"]

FORMAT = 2  # version of the cached arrays; raise it when `read_annotations` returns or refuses something else
NUM_NAMED = 3  # number of missing images that an error names


@dataclass(frozen=True)
class CocoIndex:
    """One split: N images, M objects and E edges of their outlines. Boxes and outlines are in pixels."""

    folder: Path  # of the images
    annotations: Path  # the JSON file
    image_ids: np.ndarray  # int64 [N], sorted
    file_names: np.ndarray  # str [N]
    sizes: np.ndarray  # int32 [N, 2] height, width
    object_start: np.ndarray  # int64 [N + 1]: image i has the objects object_start[i] to object_start[i + 1]
    boxes: np.ndarray  # float32 [M, 4] x0 y0 x1 y1, within the image, with an area above 0
    labels: np.ndarray  # int64 [M], 1 to the number of classes
    crowd: np.ndarray  # bool [M]: a group of objects, not used for training
    edge_start: np.ndarray  # int64 [M + 1]: object m has the edges edge_start[m] to edge_start[m + 1]
    edges: np.ndarray  # float32 [E, 4] x0 y0 x1 y1, directed; non-zero winding is inside. Crowds have no edges.
    class_names: tuple[str, ...]
    class_ids: tuple[int, ...]  # COCO's id of label l is class_ids[l - 1]
    notes: tuple[str, ...]  # on objects left out

    def paths(self, images: np.ndarray) -> list[str]:
        """Return the files of images, int64 [n] positions in the index."""
        start = f"{self.folder}{os.sep}"
        return [start + name for name in self.file_names[images].tolist()]

    def trainable(self) -> np.ndarray:
        """Return the positions of images with an object that is not a crowd, int64, sorted."""
        image = np.repeat(np.arange(len(self.image_ids)), np.diff(self.object_start))
        return np.flatnonzero(np.bincount(image[~self.crowd], minlength=len(self.image_ids)))


def load_index(
    path: str, split: Split, year: int | None = None, masks: bool = True, max_image_pixels: int = MAX_IMAGE_PIXELS
) -> CocoIndex:
    """Return the index of one split of the dataset in folder `path`; without `masks` there are no edges.

    The annotations are parsed once and cached in $TIMETRIAL_CACHE (default: $XDG_CACHE_HOME/timetrial, else
    ~/.cache/timetrial); one of several processes parses, and the others wait. Raises ConfigError for missing files, for
    files in another format, for an image of more than `max_image_pixels`, and if the folder has several years and
    `year` is None.
    """
    folder, annotations = locate(path, split, year)
    arrays: dict[str, Any] = dict(
        cached_arrays(
            "coco", [annotations], f"{masks}|{max_image_pixels}", FORMAT,
            lambda: read_annotations(annotations, masks, max_image_pixels),
        )
    )  # fmt: skip
    for name in ("class_names", "class_ids", "notes"):
        arrays[name] = tuple(arrays[name].tolist())
    index = CocoIndex(folder=folder, annotations=annotations, **arrays)
    _check_images(index)
    return index


def locate(path: str, split: Split, year: int | None) -> tuple[Path, Path]:
    """Return the split's folder of images and its annotation file. Raises ConfigError if they are missing."""
    root = resolved(path)
    layout = "annotations/instances_train2017.json, annotations/instances_val2017.json, train2017/ and val2017/"
    next_step = f"set dataset.path to a folder that holds {layout} (or the same of another year)"
    if not root.is_dir():
        raise ConfigError(f"dataset.path={path}: {root} is not a folder. Next: {next_step}")
    names = [file.name for file in (root / "annotations").glob("instances_*.json")]
    matches = [re.fullmatch(r"instances_(?:train|val)(\d{4})\.json", name) for name in names]
    years = sorted({int(match[1]) for match in matches if match})
    if not years:
        raise ConfigError(
            f"dataset.path={path}: {root} has no annotations/instances_{split}YEAR.json. Next: {next_step}"
        )
    if year is None and len(years) > 1:
        raise ConfigError(f"dataset.year: {root} has the years {years}. Next: set dataset.year to one of them")
    if year is not None and year not in years:
        raise ConfigError(f"dataset.year={year}: {root} has the years {years}. Next: set dataset.year to one of them")
    name = f"{split}{years[0] if year is None else year}"
    folder, annotations = root / name, root / "annotations" / f"instances_{name}.json"
    missing = [str(part.relative_to(root)) for part in (annotations, folder) if not part.exists()]
    if missing:
        raise ConfigError(f"dataset.path={path}: {root} lacks {' and '.join(missing)}. Next: {next_step}")
    return folder, annotations


def _check_images(index: CocoIndex) -> None:
    """Raise ConfigError if images are missing. The folder is listed once; only files in subfolders are looked up."""
    with os.scandir(index.folder) as entries:
        existing = {entry.name for entry in entries}
    names: list[str] = index.file_names.tolist()
    missing = [name for name in names if name not in existing and not ("/" in name and (index.folder / name).is_file())]
    if missing:
        some = ", ".join(missing[:NUM_NAMED]) + (", ..." if len(missing) > NUM_NAMED else "")
        raise ConfigError(
            f"dataset.path: {index.folder} lacks {len(missing):,} of the {len(names):,} images that"
            f" {index.annotations.name} lists ({some}). Next: unpack the dataset's archive of images again"
        )
