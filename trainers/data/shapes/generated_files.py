"""Generated datasets in COCO's and ImageNet's formats: textured shapes, drawn once into a cache, without a network.

`python -m trainers.data.shapes --kind detection --size 2000` draws one and prints its folder:

    detection       train2017/000000000001.jpg, val2017/..., annotations/instances_{train,val}2017.json
    classification  train/<class>/00000000.JPEG, val/<class>/...

Both have a manifest.json, which lists what the folder must contain. The data are equal for all users: split and index
determine a picture (trainers.data.shapes.scenes), so a larger set begins with the smaller ones.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from PIL import Image

from conf.schema import ConfigError
from tracking.base import installation
from trainers.data.cached import cached_folder
from trainers.data.cached.work_shares import in_shares, num_shares, while_parent_lives
from trainers.data.loading.version import MANIFEST
from trainers.data.shapes.rasterizing import CLASS_NAMES
from trainers.data.shapes.scenes import SPLITS, VERSION, Scene, classification_scene, detection_scene

Kind = Literal["detection", "classification"]
QUALITY = 90  # of the JPEG files
MIN_VAL = 100  # least number of validation images
IMAGES_PER_PROCESS = 50  # images for which starting a process is worth its time
# SHA-256 of the annotations and JPEG files of the first MIN_VAL validation images, which are equal for all sizes.
REFERENCE: dict[Kind, dict[str, str]] = {
    "detection": {
        "annotations": "952f8929bb1bb56eaf04a8305b3d8604fc6f157061af4e6b2143d87bdb23e4d2",
        "images": "48d81b36fab392cbfb9c3db6d03de1d824755ab60384bc89bec6511d92dfd5bf",
    },
    "classification": {
        "annotations": "c833ecfb054fd2c3af5b8b1c9b615c2fb7f61b233b5fbebd9147dd88441e5a8d",
        "images": "aaf155876b48ae455d099f90869a147bf8dcf1ed10684e1738c5ab593784e6a9",
    },
}
CATEGORY_IDS = (1, 2, 3, 5, 8, 10, 11, 13, 17, 18)  # one for each of CLASS_NAMES, with gaps as in COCO
ROUND = ("crescent", "disc", "wedge")


def ensure(kind: Kind, size: int, path: str | None = None) -> Path:
    """Return the folder of the dataset with `size` training images; draw it if it is missing.

    It is in `path`, by default in $TIMETRIAL_CACHE, else in timetrial of the user's cache. Raises ConfigError if
    `size` leaves a class without an image, if the folder cannot be written, or if one in `path` contradicts its
    manifest.
    """
    assert kind in get_args(Kind)
    least = len(CLASS_NAMES) if kind == "classification" else 1  # its images are of one class each
    if size < least:
        raise ConfigError(
            f"dataset.size={size}: must be {least} or more training images of the generated {kind} data set. Next: give"
            f" dataset.size={least} or more"
        )

    def make(folder: Path, lock: int | None) -> None:
        _generate(kind, size, folder, lock)

    name = f"shapes-v{VERSION}-{kind}-{size}"
    return cached_folder(name, f"{kind} data set", path, make, _trouble)


def num_images(size: int) -> dict[str, int]:
    """Return the number of images by split of a dataset with `size` training images."""
    return {"train": size, "val": max(size // 8, MIN_VAL)}


def _generate(kind: Kind, size: int, folder: Path, lock: int | None) -> None:
    """Draw a complete dataset into an empty folder."""
    images = sum(num_images(size).values())
    arguments = ["--kind", kind, "--size", str(size), "--path", str(folder)]
    in_shares(installation.module("trainers.data.shapes"), arguments, num_shares(images, IMAGES_PER_PROCESS), lock)
    drawn = _collect(folder)
    _compare(kind, [record for record in drawn if record["split"] == "val"][:MIN_VAL])
    if kind == "detection":
        (folder / "annotations").mkdir()
        for split in SPLITS:
            content = coco_file([record for record in drawn if record["split"] == split], VERSION)
            (folder / "annotations" / f"instances_{split}2017.json").write_text(content)
    manifest = _contents(folder) | {"images": _digest(drawn, "sha256")}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))


def _collect(partial: Path) -> list[dict[str, Any]]:
    """Return the records of draw_share, in the order of the images."""
    drawn = []
    for share in partial.glob("share-*.json"):
        drawn += json.loads(share.read_text())
        share.unlink()
    return sorted(drawn, key=lambda record: (record["split"], record["index"]))


def draw_share(kind: Kind, size: int, folder: Path, share: int, of: int) -> None:
    """Draw every `of`-th image into `folder`, and write their objects and hashes to share-<n>.json there."""
    records = []
    for split, num in num_images(size).items():
        for index in while_parent_lives(range(share, num, of)):
            scene = (detection_scene if kind == "detection" else classification_scene)(split, index)
            if kind == "detection":
                file = folder / f"{split}2017" / f"{index + 1:012d}.jpg"
            else:
                file = folder / split / CLASS_NAMES[scene.things[0].shape] / f"{index:08d}.JPEG"
            content = io.BytesIO()
            Image.fromarray(scene.pixels).save(content, "JPEG", quality=QUALITY)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.getvalue())
            digest = hashlib.sha256(content.getvalue()).hexdigest()
            record = {"split": split, "index": index, "file": file.name, "sha256": digest}
            # Outlines take a fifth of the time. Classification needs only those that are compared with the reference.
            outlined = kind == "detection" or (split == "val" and index < MIN_VAL)
            records.append(record | {"size": scene.owner.shape, "annotations": annotate(scene) if outlined else []})
    (folder / f"share-{share:03d}.json").write_text(json.dumps(records))


def _compare(kind: Kind, drawn: list[dict[str, Any]]) -> None:
    """Compare with the reference: annotations must be equal; pixels may differ with another version of libjpeg."""
    digests = {"annotations": _digest(drawn, "annotations"), "images": _digest(drawn, "sha256")}
    if digests["annotations"] != REFERENCE[kind]["annotations"]:
        raise ConfigError(
            f"the generated {kind} data set has annotations with SHA-256 {digests['annotations']}, expected"
            f" {REFERENCE[kind]['annotations']}: this Python or NumPy computes differently. Next: draw it in another"
            " environment and copy the folder"
        )
    if digests["images"] != REFERENCE[kind]["images"]:
        print(
            f"The generated {kind} images differ from the reference in some bits, as is usual with another version of"
            " Pillow or libjpeg. Accuracies are still comparable; copy one folder to all machines to exclude it.",
            file=sys.stderr,
        )


def _digest(drawn: list[dict[str, Any]], key: str) -> str:
    return hashlib.sha256(json.dumps([record[key] for record in drawn], sort_keys=True).encode()).hexdigest()


def _trouble(root: Path) -> str:
    """Return what contradicts the manifest; empty if nothing does."""
    try:
        expected = json.loads((root / MANIFEST).read_text())
        contents = _contents(root)
        return next((f"its {key} have changed" for key in contents if contents[key] != expected.get(key)), "")
    except (OSError, ValueError, AttributeError) as error:
        return str(error) or type(error).__name__


def _contents(root: Path) -> dict[str, str]:
    """Return the SHA-256 of the list of files with their sizes in bytes, and of the annotations."""
    files = sorted(f"{name} {size}" for name, size in _walk(root, "") if name != MANIFEST)
    annotated = hashlib.sha256()
    for file in sorted((root / "annotations").glob("*.json")):
        annotated.update(file.read_bytes())
    listed = hashlib.sha256("\n".join(files).encode())
    return {"files": listed.hexdigest(), "annotations": annotated.hexdigest()}


def _walk(folder: Path, prefix: str, above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[tuple[str, int]]:
    """Yield every file with its size in bytes. Raises OSError for a link to a folder above it, an endless loop."""
    state = folder.stat()
    identity = (state.st_dev, state.st_ino)
    if identity in above:
        raise OSError(f"{prefix} is a link to a folder above it")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", above | {identity})
            else:
                yield prefix + entry.name, entry.stat().st_size


def annotate(scene: Scene) -> list[dict[str, Any]]:
    """Return COCO's annotations of a scene, without ids. `area` and `bbox` are those of the visible pixels."""
    annotations = []
    for number, thing in enumerate(scene.things, start=1):
        mask = scene.visible(number)
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        x, y, right, bottom = int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
        polygons = [] if thing.is_crowd else [polygon.ravel().tolist() for polygon in scene.polygons(number)]
        annotations.append(
            {
                "segmentation": run_lengths(mask) if thing.is_crowd else polygons,
                "area": int(mask.sum()),
                "iscrowd": int(thing.is_crowd),
                "bbox": [x, y, right - x, bottom - y],
                "category_id": CATEGORY_IDS[thing.shape],
            }
        )
    return annotations


def run_lengths(mask: np.ndarray) -> dict[str, list[int]]:
    """Return COCO's uncompressed mask of bool [height, width]: lengths of the runs of 0, 1, 0, ... along columns."""
    column_wise = np.concatenate([[False], mask.T.ravel()])
    changes = np.flatnonzero(np.diff(column_wise))
    return {"counts": np.diff([0, *changes, mask.size]).tolist(), "size": list(mask.shape)}


def coco_file(drawn: list[dict[str, Any]], version: int) -> str:
    """Return the content of a split's file. `drawn` has index, file, size (height, width) and annotations by image."""
    images: list[dict[str, Any]] = []
    numbered: list[dict[str, Any]] = []
    for record in drawn:
        image_id, (height, width) = record["index"] + 1, record["size"]
        images.append(
            {"license": 1, "file_name": record["file"], "coco_url": "", "height": height, "width": width}
            | {"date_captured": "2026-01-01 00:00:00", "flickr_url": "", "id": image_id}
        )
        for annotation in record["annotations"]:
            numbered.append(annotation | {"image_id": image_id, "id": len(numbered) + 1})
    categories = [
        {"supercategory": "round" if name in ROUND else "angular", "id": category_id, "name": name}
        for category_id, name in zip(CATEGORY_IDS, CLASS_NAMES, strict=True)
    ]
    content = {
        "info": {"description": "Drawn shapes", "url": "", "version": str(version), "year": 2026}
        | {"contributor": "timetrial", "date_created": "2026/01/01"},
        "licenses": [{"url": "", "id": 1, "name": "Apache-2.0"}],
        "images": images,
        "annotations": numbered,
        "categories": categories,
    }
    return json.dumps(content, separators=(",", ":"))
