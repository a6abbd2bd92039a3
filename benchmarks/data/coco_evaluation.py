"""Time of the host's part of an evaluation at COCO's size: ours and pycocotools', on the same detections.

    python benchmarks/data/coco_evaluation.py --images 5000 --repeats 3

The data are generated with the size of COCO 2017's validation set: 5,000 images of 480x640, 80 classes, and objects
with outlines, as many in an image as COCO's on average. COCO has 36,781 of them, and the fixed seed draws 36,472.
Objects are ellipses. Each image has 100 detections, the most that a detector may give, with boxes and masks; some are
its objects, moved a little.

"First" includes reading the annotations, as in a run's first evaluation. The network is left out. With `--processes`,
several processes share our images, and the time is rank 0's; pycocotools always has one process. pycocotools also
evaluates small, medium and large objects by themselves, ours does not.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
import torch
import torch.distributed as dist
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from trainers.data.coco import CocoIndex, DetectionEvaluator, IouType, load_index

HEIGHT, WIDTH, NUM_CLASSES, OBJECTS_AN_IMAGE, DETECTIONS, CORNERS = 480, 640, 80, 7.356, 100, 24
KINDS: tuple[IouType, ...] = ("bbox", "segm")
Arrays = dict[str, Any]


def outline(box: np.ndarray) -> list[float]:
    """A polygon inside the box x0 y0 x1 y1, with the mean number of corners of COCO's outlines."""
    angle = np.linspace(0, 2 * np.pi, CORNERS, endpoint=False)
    x = (box[0] + box[2]) / 2 + (box[2] - box[0]) / 2 * np.cos(angle)
    y = (box[1] + box[3]) / 2 + (box[3] - box[1]) / 2 * np.sin(angle)
    points: list[float] = np.stack((x, y), axis=1).round(2).ravel().tolist()
    return points


def boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    """Random boxes: float64 [count, 4], x0 y0 x1 y1; many are small."""
    size = np.array([WIDTH, HEIGHT]) * np.exp(rng.uniform(np.log(0.03), np.log(0.9), (count, 2)))
    corner = rng.uniform(0, 1, (count, 2)) * (np.array([WIDTH, HEIGHT]) - size)
    return np.concatenate((corner, corner + size), axis=1)


def write_annotations(root: Path, num_images: int, rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Write a dataset of empty files in COCO's layout. Returns each image's boxes and labels (from 1)."""
    objects_by_image: list[tuple[np.ndarray, np.ndarray]] = []
    annotations: list[dict[str, Any]] = []
    for image in range(num_images):
        image_boxes = boxes(rng, rng.poisson(OBJECTS_AN_IMAGE))
        labels = rng.integers(1, NUM_CLASSES + 1, len(image_boxes))
        objects_by_image.append((image_boxes, labels))
        for box, label in zip(image_boxes, labels.tolist(), strict=True):
            width, height = (box[2:] - box[:2]).tolist()
            place = [*box[:2].tolist(), width, height]
            annotations.append(
                {"id": len(annotations) + 1, "image_id": image + 1, "category_id": label, "bbox": place, "iscrowd": 0,
                 "segmentation": [outline(box)], "area": width * height * np.pi / 4}
            )  # fmt: skip
    content = {
        "images": [{"id": i + 1, "file_name": f"{i}.jpg", "height": HEIGHT, "width": WIDTH} for i in range(num_images)],
        "annotations": annotations,
        "categories": [{"id": label, "name": f"class {label}"} for label in range(1, NUM_CLASSES + 1)],
    }
    (root / "annotations").mkdir()
    (root / "annotations" / "instances_val2017.json").write_text(json.dumps(content))
    (root / "val2017").mkdir()
    for image in range(num_images):
        (root / "val2017" / f"{image}.jpg").touch()
    return objects_by_image


def detections(objects: list[tuple[np.ndarray, np.ndarray]], rng: np.random.Generator) -> Arrays:
    parts: list[tuple[np.ndarray, ...]] = []
    masks: list[bytes] = []
    for image, (truth, labels) in enumerate(objects):
        moved = truth[rng.random(len(truth)) < 0.8] if len(truth) else truth
        moved = moved + rng.normal(0, 4, moved.shape)
        moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2] + 2)
        placed = np.concatenate((moved, boxes(rng, DETECTIONS - len(moved))))[:DETECTIONS]
        classes = np.concatenate((labels[: len(moved)], rng.integers(1, NUM_CLASSES + 1, DETECTIONS)))[:DETECTIONS]
        scores = np.concatenate((rng.uniform(0.3, 1, len(moved)), rng.uniform(0, 0.6, DETECTIONS)))[:DETECTIONS]
        parts.append((np.full(DETECTIONS, image), placed.astype(np.float32), scores.astype(np.float32), classes))
        regions = coco_mask.frPyObjects([outline(box) for box in placed], HEIGHT, WIDTH)
        masks += [region["counts"] for region in regions]
    names = ("image_index", "boxes", "scores", "labels")
    joined = {name: np.concatenate(column) for name, column in zip(names, zip(*parts, strict=True), strict=True)}
    return {**joined, "masks": masks}


def by_pycocotools(annotations: Path, predictions: Arrays) -> dict[str, float]:
    truth = COCO(str(annotations))
    results: dict[str, float] = {}
    placed = predictions["boxes"].astype(np.float64)
    placed[:, 2:] -= placed[:, :2]
    columns = (
        (predictions["image_index"] + 1).tolist(),
        predictions["labels"].tolist(),
        predictions["scores"].astype(float).tolist(),
    )
    for kind in KINDS:
        rows = [
            {"image_id": image, "category_id": label, "score": score}
            | ({"bbox": box} if kind == "bbox" else {"segmentation": {"size": [HEIGHT, WIDTH], "counts": mask}})
            for image, label, score, box, mask in zip(*columns, placed.tolist(), predictions["masks"], strict=True)
        ]
        evaluation = COCOeval(truth, truth.loadRes(rows), kind)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
        results[kind] = float(evaluation.stats[0])
    return results


def share(rank: int, num_processes: int, folder: str, index: CocoIndex, predictions: Arrays) -> None:
    """One process of ours: evaluates twice. Rank 0 writes its seconds and figures to the folder."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=num_processes)
    torch.set_num_threads(1)
    chosen = predictions["image_index"] % num_processes == rank
    detected = {name: values[chosen] for name, values in predictions.items() if name != "masks"}
    detected["masks"] = [predictions["masks"][at] for at in np.flatnonzero(chosen)]
    evaluator, seconds = DetectionEvaluator(index, KINDS), []
    for _ in range(2):
        evaluator.add(**detected)
        dist.barrier()
        started = time.perf_counter()
        figures = evaluator.compute()
        seconds.append(time.perf_counter() - started)
    if rank == 0:
        (Path(folder) / "ours.json").write_text(json.dumps([seconds, figures]))
    dist.destroy_process_group()


def by_ours(num_processes: int, index: CocoIndex, predictions: Arrays) -> tuple[list[float], dict[str, float]]:
    """Seconds of the first and the second evaluation, and the figures of the second."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = (num_processes, folder, index, predictions)
        torch.multiprocessing.start_processes(share, arguments, num_processes, start_method="fork")
        seconds, figures = json.loads((Path(folder) / "ours.json").read_text())
    return seconds, figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    for option, value in vars(arguments).items():
        if value < 1:
            parser.error(f"--{option} {value}: give 1 or more")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        os.environ["TIMETRIAL_CACHE"] = f"{name}/cache"
        objects = write_annotations(Path(name), arguments.images, rng)
        predictions = detections(objects, rng)
        index = load_index(name, "val", masks=False)
        print(f"{arguments.images:,} images, {sum(len(labels) for _, labels in objects):,} objects,"
              f" {len(predictions['labels']):,} detections with masks;"
              f" seconds, median (least to most) of {arguments.repeats}")  # fmt: skip
        times: dict[str, list[float]] = {"first": [], "later": [], "pycocotools": []}
        for _ in range(arguments.repeats):
            (first, later), ours = by_ours(arguments.processes, index, predictions)
            started = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()):
                theirs = by_pycocotools(index.annotations, predictions)
            for variant, seconds in zip(times, (first, later, time.perf_counter() - started), strict=True):
                times[variant].append(seconds)
            for kind, name_of in zip(KINDS, ("box_map", "mask_map"), strict=True):
                assert abs(ours[name_of] - theirs[kind]) < 1e-9, (ours, theirs)
    for variant, each in times.items():
        ratio = statistics.median(times["pycocotools"]) / statistics.median(each)
        spread = f"({min(each):.1f} to {max(each):.1f})"
        print(f"{variant:12} {statistics.median(each):7.1f} {spread:18} {ratio:5.1f} times as fast")
    print(f"box mAP {ours['box_map']:.4f}, mask mAP {ours['mask_map']:.4f}: equal to pycocotools' within 1e-9")


if __name__ == "__main__":
    main()
