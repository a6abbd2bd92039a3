"""Accuracy of Mask R-CNN on dataset=shapes with torchvision's code, to compare ours with.

    python benchmarks/peers/reference_accuracy.py recipe=maskrcnn_cpu gpus=0 seed=1 max_epochs=2
    python launch.py model=maskrcnn recipe=maskrcnn_cpu gpus=0 seed=1 max_epochs=2 stop_at_target=false

Initial weights, files, images an epoch, batch, optimizer and schedule are those of launch.py with these options. All
else is torchvision's and pycocotools': reading, masks of whole pixels, transforms, losses, detections, average
precision. Image order, flips and the loss's samples are drawn by other generators, so figures agree within the spread
over seeds, not to the digit.

After each epoch our code also evaluates torchvision's weights, in the run's precision (`ours_box_map`,
`ours_mask_map`). That comparison has no randomness of training.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from PIL import Image
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torchvision.models import resnet
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.transforms.functional import pil_to_tensor

from benchmarks.steps.run_alone import AUTOCAST, composed, join_alone
from conf.schema import RunConfig
from trainers.loop.build import make_data, make_module
from trainers.models.maskrcnn import MaskRcnn
from trainers.workload import load_workload, viewed

Sample = tuple[torch.Tensor, dict[str, torch.Tensor]]


class Pictures(torch.utils.data.Dataset[Sample]):
    """Images as float [3, h, w] with their objects, without crowds. Training skips empty images and flips half.

    Labels number COCO's sorted category ids from 1.
    """

    def __init__(self, root: Path, split: str, train: bool) -> None:
        self.coco = quietly(COCO, root / "annotations" / f"instances_{split}2017.json")
        self.folder, self.train = root / f"{split}2017", train
        self.category_ids = sorted(self.coco.getCatIds())
        objects = {
            image_id: self.coco.loadAnns(self.coco.getAnnIds(image_id, iscrowd=False))
            for image_id in self.coco.getImgIds()
        }
        self.objects = {
            image_id: image_objects for image_id, image_objects in objects.items() if image_objects or not train
        }
        self.image_ids = sorted(self.objects)

    def __len__(self) -> int:
        return len(self.image_ids)

    def __getitem__(self, place: int) -> Sample:
        image_id = self.image_ids[place]
        with Image.open(self.folder / self.coco.loadImgs(image_id)[0]["file_name"]) as file:
            image = pil_to_tensor(file.convert("RGB")).float() / 255
        objects = self.objects[image_id]
        boxes = torch.tensor([annotation["bbox"] for annotation in objects], dtype=torch.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        no_mask = np.zeros((0, *image.shape[1:]), np.uint8)
        masks = [self.coco.annToMask(annotation) for annotation in objects] or [no_mask]
        target = {
            "boxes": boxes,
            "labels": torch.tensor([self.category_ids.index(annotation["category_id"]) + 1 for annotation in objects]),
            "masks": torch.from_numpy(np.stack(masks)),
            "image_id": torch.tensor(image_id),
        }
        if self.train and torch.rand(()) < 0.5:
            image, target["masks"] = image.flip(2), target["masks"].flip(2)
            target["boxes"] = boxes[:, [2, 1, 0, 3]] * torch.tensor([-1, 1, -1, 1]) + torch.tensor(
                [image.shape[2], 0, image.shape[2], 0]
            )
        return image, target


def reference(ours: MaskRcnn, hparams: dict[str, Any], num_classes: int) -> MaskRCNN:
    """torchvision's model with the same options and with our initial weights."""
    backbone, channels = hparams.get("backbone", "resnet50"), hparams.get("channels", 256)
    body = getattr(resnet, backbone)(weights=None)
    widths = [body.inplanes // 8 << stage for stage in range(4)]
    stages = {f"layer{stage + 1}": str(stage) for stage in range(4)}
    num = hparams["num_proposals"]
    net = MaskRCNN(
        BackboneWithFPN(body, stages, widths, channels), min_size=hparams["min_size"], max_size=hparams["max_size"],
        box_head=TwoMLPHead(channels * 7 * 7, 4 * channels), box_predictor=FastRCNNPredictor(4 * channels, num_classes),
        mask_head=MaskRCNNHeads(channels, (channels,) * 4, 1),
        mask_predictor=MaskRCNNPredictor(channels, channels, num_classes),
        rpn_pre_nms_top_n_train=num, rpn_post_nms_top_n_train=num, rpn_pre_nms_top_n_test=num // 2,
        rpn_post_nms_top_n_test=num // 2, box_batch_size_per_image=hparams["num_regions"],
    )  # fmt: skip
    net.load_state_dict(ours.net.state_dict())
    return net


def load(pictures: Pictures, batch_size: int, shuffle: bool) -> torch.utils.data.DataLoader[Sample]:
    """Batches for torchvision's detection models: a tuple of images, and one of their objects."""
    num_workers = len(os.sched_getaffinity(0))  # cores of this process
    return torch.utils.data.DataLoader(
        pictures,
        batch_size,
        shuffle,
        num_workers=num_workers,
        collate_fn=lambda samples: tuple(zip(*samples, strict=True)),
    )


def train_epoch(
    net: MaskRCNN, loader: Any, optimizer: torch.optim.Optimizer, ours: MaskRcnn, epoch: int, config: RunConfig
) -> float:
    """Mean loss of a training epoch, with our schedule's rate at each step."""
    device, kind = next(net.parameters()).device, AUTOCAST.get(config.precision.name)
    losses = []
    for number, (images, targets) in enumerate(loader):
        for group in optimizer.param_groups:
            group["lr"] = ours.schedule.at(epoch + number / len(loader), epoch * len(loader) + number)
        on_device = [{key: value.to(device) for key, value in target.items()} for target in targets]
        optimizer.zero_grad()
        with torch.autocast(device.type, kind or torch.bfloat16, enabled=kind is not None):
            loss = sum(net([image.to(device) for image in images], on_device).values())
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return float(np.mean(losses))


@torch.no_grad()
def evaluate(net: MaskRCNN, pictures: Pictures, loader: Any) -> dict[str, float]:
    """Average precision of torchvision's detections on whole images, by pycocotools."""
    device = next(net.parameters()).device
    net.eval()
    results = []
    for images, targets in loader:
        for target, output in zip(targets, net([image.to(device) for image in images]), strict=True):
            masks = (output["masks"][:, 0] > 0.5).cpu().numpy().astype(np.uint8)
            boxes, scores, labels = (output[key].cpu().tolist() for key in ("boxes", "scores", "labels"))
            for (x0, y0, x1, y1), score, label, mask in zip(boxes, scores, labels, masks, strict=True):
                results.append(
                    {"image_id": int(target["image_id"]), "category_id": pictures.category_ids[label - 1],
                     "bbox": [x0, y0, x1 - x0, y1 - y0], "score": score,
                     "segmentation": coco_mask.encode(np.asfortranarray(mask))}
                )  # fmt: skip
    net.train()
    return dict(precisions(pictures.coco, results))


@torch.no_grad()
def evaluate_ours(ours: MaskRcnn, net: MaskRCNN, loader: Any, kind: torch.dtype | None) -> dict[str, float]:
    """Average precision of torchvision's weights by our evaluation."""
    ours.net.load_state_dict(net.state_dict())
    ours.eval()
    for index, batch in enumerate(loader):
        with torch.autocast(ours.device.type, kind or torch.bfloat16, enabled=kind is not None):
            ours.validation_step(batch, index)
    return {f"ours_{name}": value for name, value in ours.metrics().items() if name in ("box_map", "mask_map")}


def precisions(truth: COCO, results: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    for name, kind in (("box_map", "bbox"), ("mask_map", "segm")):
        detections = quietly(truth.loadRes, results) if results else None
        evaluation = COCOeval(truth, detections, kind) if results else None
        if evaluation:
            for step in (evaluation.evaluate, evaluation.accumulate, evaluation.summarize):
                quietly(step)
        yield name, float(evaluation.stats[0]) if evaluation else 0.0


def quietly(function: Any, *arguments: Any) -> Any:
    with contextlib.redirect_stdout(io.StringIO()):
        return function(*arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="options of launch.py")
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    config = composed(["model=maskrcnn", *arguments.overrides])
    shard = join_alone(parser, config)
    pl.seed_everything(config.seed, verbose=False)
    workload = load_workload(config)
    data = make_data(workload, config.dataset)
    ours = make_module(workload, data, config)
    assert isinstance(ours, MaskRcnn)
    ours.to(shard.device)
    net = reference(ours, config.model.hparams, data.num_classes + 1).to(shard.device).train()  # type: ignore[attr-defined]
    optimizer = torch.optim.SGD(
        net.parameters(), ours.schedule.learning_rate, ours.momentum, weight_decay=ours.weight_decay
    )
    root = data.train.folder.parent  # type: ignore[attr-defined]
    pictures = Pictures(root, "val", train=False)
    train_loader = load(Pictures(root, "train", train=True), config.device_batch_size(), shuffle=True)
    eval_loader = load(pictures, 8, shuffle=False)
    our_loader = viewed(data, ours).eval_loader(config.device_batch_size(), shard)
    rows: list[dict[str, Any]] = []
    for epoch in range(config.max_epochs or ours.max_epochs):
        started = time.monotonic()
        loss = train_epoch(net, train_loader, optimizer, ours, epoch, config)
        trained = time.monotonic()
        row = {"seed": config.seed, "epoch": epoch + 1, "loss": loss, **evaluate(net, pictures, eval_loader)}
        row |= {"train_sec": trained - started, "eval_sec": time.monotonic() - trained}
        row |= evaluate_ours(ours, net, our_loader, AUTOCAST.get(config.precision.name))
        print("  ".join(f"{key} {value:.4g}" for key, value in row.items()), flush=True)
        rows.append(row)
    dist.destroy_process_group()
    if arguments.csv:
        with arguments.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
