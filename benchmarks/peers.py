"""Our training steps beside those that a user would write today, in one process on one GPU, as a ratio.

    python benchmarks/peers.py maskrcnn                     all variants of the peer, then ours
    python benchmarks/peers.py resnet50 ssd maskrcnn --steps 50 --precision bf16 --csv peers.csv

Both sides get the same shapes and precision, generated batches that lie on the device, SGD with momentum, and are timed
by CUDA events after a warm-up; the spread is the quartiles over steps. The peers are torchvision's models as its
documentation uses them: with autocast, then with channels_last, then compiled where that works. Mask R-CNN is that of
the published recipes, its backbone pretrained (random weights here) and partly frozen. Ours is the workload's module
with its compiled hot path, without Lightning around it: what launch.py adds is in docs/results.
"""

from __future__ import annotations

import argparse
import csv
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch
import torch.nn.functional as F
import torchvision
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from conf import schema
from trainers.data.detection.synthetic import OBJECTS, generated_batch
from trainers.loop import precision as precisions
from trainers.loop.train import join, make_data, make_module
from trainers.workload import Batch, Shard, TrialModule, load_workload, viewed

Step = Callable[[], None]
DEVICE = torch.device("cuda")
WARMUP = 5
BATCH = {"resnet50": 1024, "ssd": 128, "maskrcnn": 8}
MASKRCNN_CANVAS = (800, 1216)
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def train_step(parameters: Any, loss: Callable[[], torch.Tensor], precision: str, fused: bool) -> Step:
    optimizer = torch.optim.SGD(
        [one for one in parameters if one.requires_grad], lr=1e-5, momentum=0.9, weight_decay=1e-4, fused=fused
    )
    kind = AUTOCAST.get(precision)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", kind or torch.bfloat16, enabled=kind is not None):
            value = loss()
        value.backward()
        optimizer.step()

    return step


def resnet50_peers(batch_size: int, precision: str) -> Iterator[tuple[str, Step]]:
    images = torch.rand(batch_size, 3, 224, 224, device=DEVICE)
    labels = torch.randint(0, 1000, (batch_size,), device=DEVICE)
    for name, channels_last, compiled in (
        ("torchvision", False, False), ("+ channels_last", True, False), ("+ compile, fused SGD", True, True),
    ):  # fmt: skip
        net: Any = torchvision.models.resnet50().to(DEVICE)
        if channels_last:
            net, images = net.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
        run = torch.compile(net) if compiled else net
        yield name, train_step(net.parameters(), lambda: F.cross_entropy(run(images), labels), precision, compiled)  # noqa: B023


def detector_peers(net: Any, name: str, batch: Batch, precision: str, masks: bool) -> Iterator[tuple[str, Step]]:
    images = list(batch["images"].float() / 255)
    height, width = batch["images"].shape[2:]
    targets = []
    for boxes, labels in zip(batch["boxes"][:, :OBJECTS], batch["labels"][:, :OBJECTS], strict=True):
        target = {"boxes": boxes, "labels": labels}
        if masks:
            target["masks"] = box_masks(boxes, height, width)
        targets.append(target)
    net = net.to(DEVICE).train()
    yield name, train_step(net.parameters(), lambda: sum(net(images, targets).values()), precision, False)


def box_masks(boxes: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """uint8 [n, height, width]: the inside of each box; what is in a mask does not change the work."""
    y, x = torch.arange(height, device=DEVICE)[:, None], torch.arange(width, device=DEVICE)
    x0, y0, x1, y1 = (side[:, None, None] for side in boxes.unbind(1))
    return ((x >= x0) & (x < x1) & (y >= y0) & (y < y1)).to(torch.uint8)


def peers(workload: str, batch_size: int, precision: str) -> Iterator[tuple[str, Step]]:
    detection = torchvision.models.detection
    if workload == "resnet50":
        yield from resnet50_peers(batch_size, precision)
    elif workload == "ssd":
        net = detection.ssd300_vgg16(weights=None, weights_backbone=None, num_classes=81)
        batch = generated_batch(batch_size, (300, 300), OBJECTS, 80, False, DEVICE)
        yield from detector_peers(net, "torchvision ssd300_vgg16", batch, precision, masks=False)
    else:
        # As with pretrained weights: batch normalisation and the first two stages frozen.
        body = torchvision.models.resnet50(norm_layer=torchvision.ops.misc.FrozenBatchNorm2d)
        net = detection.MaskRCNN(detection.backbone_utils._resnet_fpn_extractor(body, 3), num_classes=81)
        net.transform.fixed_size = MASKRCNN_CANVAS[::-1]
        batch = generated_batch(batch_size, MASKRCNN_CANVAS, OBJECTS, 80, True, DEVICE)
        yield from detector_peers(net, "torchvision maskrcnn_resnet50_fpn", batch, precision, masks=True)


def ours(workload: str, batch_size: int, precision: str) -> Step:
    config = composed([f"model={workload}", "dataset=synthetic", f"precision={precision}", "gpus=1"])
    precisions.apply(config.precision)
    if workload == "maskrcnn":
        config.model.hparams["pretrained"] = random_weights()  # so that the same layers are frozen
    loaded = load_workload(config)
    data = make_data(loaded, config.dataset)
    module: TrialModule = make_module(loaded, data, config)
    data = viewed(data, module)
    if workload == "maskrcnn":
        data.canvas = MASKRCNN_CANVAS  # type: ignore[attr-defined]
    module.to(DEVICE).train()
    module.compile_hot_path()
    batches = data.example_batches(batch_size, DEVICE)
    return train_step(module.parameters(), lambda: module.training_step(batches[0], 0), precision, True)  # type: ignore[arg-type,return-value]


def random_weights() -> str:
    """A file of a ResNet-50's weights: how fast it trains does not depend on what they are."""
    file = Path(tempfile.mkdtemp()) / "resnet50.pt"
    torch.save(torchvision.models.resnet50().state_dict(), file)
    return str(file)


def composed(overrides: list[str]) -> schema.RunConfig:
    ConfigStore.instance().store("schema", schema.RunConfig)
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return OmegaConf.to_object(compose("config", overrides))  # type: ignore[return-value]


def join_alone(parser: argparse.ArgumentParser, config: schema.RunConfig) -> Shard:
    """This process as a run's only one, in the run's precision; where `gpus=` asks for another, the program ends."""
    there = torch.cuda.device_count()
    if str(config.gpus) not in ("0", "1") or int(config.gpus) > there:
        parser.error(f"gpus={config.gpus}: give gpus=0, the CPU, or gpus=1, of {there} visible on this machine")
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    shard = join(config)
    precisions.apply(config.precision)
    return shard


def measure(step: Step, steps: int) -> tuple[list[float], float]:
    """Milliseconds of each step, and seconds until the first ones had run."""
    begun = time.perf_counter()
    for _ in range(WARMUP):
        step()
    torch.cuda.synchronize()
    warmup = time.perf_counter() - begun
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in pairwise(marks)], warmup


def rows(workload: str, batch_size: int, precision: str, steps: int) -> Iterator[dict[str, Any]]:
    def row(name: str, step: Step) -> dict[str, Any]:
        milliseconds, warmup = measure(step, steps)
        low, middle, high = statistics.quantiles(milliseconds, n=4)
        return {
            "workload": workload, "precision": precision, "batch_size": batch_size, "name": name, "steps": steps,
            "images_per_sec": batch_size * 1e3 / middle, "step_ms_p25": low, "step_ms_p50": middle, "step_ms_p75": high,
            "warmup_sec": warmup, "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        }  # fmt: skip

    for name, step in peers(workload, batch_size, precision):
        yield row(name, step)
        del step
        release()
    yield row("ours", ours(workload, batch_size, precision))
    release()


def release() -> None:
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+", choices=list(BATCH))
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp16"), default="bf16")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    found: list[dict[str, Any]] = []
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, torchvision {torchvision.__version__}")
    for workload in asked.workloads:
        precisions.apply(composed([f"precision={asked.precision}"]).precision)
        batch_size = asked.batch_size or BATCH[workload]
        own = list(rows(workload, batch_size, asked.precision, asked.steps))
        for one in own:
            ratio = own[-1]["images_per_sec"] / one["images_per_sec"]
            print(
                f"{workload:9} {one['name']:34} {one['images_per_sec']:9,.1f} images/s   {one['step_ms_p50']:7.2f} ms"
                f" ({one['step_ms_p25']:.2f}-{one['step_ms_p75']:.2f}), batch {batch_size}, {asked.precision},"
                f" {one['peak_gib']:.0f} GiB, first steps {one['warmup_sec']:.0f} s: ours is {ratio:.2f} times as fast",
                flush=True,
            )
        found += own
    if asked.csv:
        with asked.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(found[0]))
            writer.writeheader()
            writer.writerows(found)


if __name__ == "__main__":
    main()
