"""Rates of ResNet-50 from generated batches, our loader and NVIDIA DALI, in one process on the same files.

    uv pip install nvidia-dali-cuda130
    python benchmarks/data/dali_input.py dataset=shapes precision=bf16 gpus=1 batch_size=512
    python benchmarks/data/dali_input.py recipe=resnet50_cpu precision=fp32 gpus=0 --steps 10  # without mixed decoding

Options are those of launch.py. All sources give the same step the same shapes: random crops of the same least area,
resized bilinearly to the same size, half of them flipped. DALI's pipelines are those of its documentation: `mixed`
decodes on the GPU (with its JPEG engine where it has one), `cpu` on the host. Both decode only the crop where they can.

Printed for each source: images/s without training ("alone"), images/s of training, ms a step (median and quartiles),
and the ratio to training on generated batches.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.steps.device_kernels import wait
from benchmarks.steps.run_alone import composed, join_alone
from benchmarks.steps.step_anatomy import WARMUP, Training, endless, shown, steps_ms
from conf.schema import RunConfig
from trainers.data.image_folder import ImageFolderData
from trainers.data.jpeg import SharedReader, threads_per_process
from trainers.loop.build import make_data, make_module
from trainers.workload import Batch, Shard, load_workload


def dali_batches(
    data: ImageFolderData, batch_size: int, seed: int, device: torch.device, decoder: str
) -> Iterator[Batch]:
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    files = data.train.paths(np.arange(len(data.train.labels)))
    on_gpu = device.type == "cuda"

    @pipeline_def
    def augmented() -> Any:
        jpegs, labels = fn.readers.file(
            files=files, labels=data.train.labels.tolist(), random_shuffle=True, initial_fill=len(files)
        )
        images = fn.decoders.image_random_crop(
            jpegs, device=decoder, output_type=types.RGB, random_area=[data.view.min_crop_area, 1.0],
            random_aspect_ratio=[3 / 4, 4 / 3], num_attempts=10,
        )  # fmt: skip
        images = fn.resize(images, size=data.image_size, interp_type=types.INTERP_LINEAR)
        images = fn.flip(images, horizontal=fn.random.coin_flip())
        return (images.gpu(), labels.gpu()) if on_gpu else (images, labels)

    pipeline = augmented(
        batch_size=batch_size, num_threads=threads_per_process(1), device_id=device.index if on_gpu else None, seed=seed
    )
    weights = torch.full((batch_size,), 1.0 / batch_size, device=device)
    for [batch] in DALIGenericIterator(pipeline, ["images", "labels"]):  # Without a size the iterator is endless.
        images = batch["images"].permute(0, 3, 1, 2)  # channels_last, as ours
        labels = batch["labels"].squeeze(1).long()
        yield {"images": images, "labels": labels, "weights": weights, "num_samples": batch_size}


def sources(config: RunConfig, data: ImageFolderData, shard: Shard) -> Iterator[tuple[str, Iterator[Batch]]]:
    batch_size, device = config.device_batch_size(), shard.device
    yield "generated", itertools.cycle(data.example_batches(batch_size, device))
    decoders = {"cpu": "cpu", "gpu": "mixed"} if device.type == "cuda" else {"cpu": "cpu"}
    for ours, dali in decoders.items():
        data.reader = SharedReader(ours)
        yield f"ours, {ours}", endless(data.train_loader(batch_size, config.seed, shard))
        yield f"DALI, {dali}", dali_batches(data, batch_size, config.seed, device, dali)


def alone(batches: Iterator[Batch], num: int, device: torch.device) -> float:
    """Images a second without training."""
    for _ in range(WARMUP):
        next(batches)
    wait(device)
    started = time.perf_counter()
    samples = sum(next(batches)["num_samples"] for _ in range(num))
    wait(device)
    return samples / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="options of launch.py")
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_intermixed_args()
    if arguments.steps < 1:
        parser.error(f"--steps {arguments.steps}: must be at least 1")
    try:
        import nvidia.dali  # noqa: F401
    except ImportError as error:
        parser.error(f"{error}; install NVIDIA DALI: uv pip install nvidia-dali-cuda130")
    config = composed(["model=resnet50", "dataset=shapes", *arguments.overrides])
    shard = join_alone(parser, config)
    torch.manual_seed(config.seed)
    workload = load_workload(config)
    data = make_data(workload, config.dataset)
    if not isinstance(data, ImageFolderData):
        parser.error(
            f"model={config.model.name} dataset={config.dataset.name}: DALI reads model=resnet50's image files"
        )
    module = make_module(workload, data, config)
    data = data.viewed(module.view)
    training = Training(config, data, module, shard, "after")
    for _ in range(WARMUP):
        training.step(data.example_batches(config.device_batch_size(), shard.device)[0])
    generated_rate = None
    for name, batches in sources(config, data, shard):
        rate_alone = alone(batches, arguments.steps, shard.device)
        for _ in range(WARMUP):
            training.step(next(batches))
        step, rate = steps_ms(training, batches, arguments.steps)
        generated_rate = generated_rate or rate
        print(
            f"{name:12} alone {rate_alone:8,.0f}  training {rate:8,.0f} images/s, {shown(step)} ms a step, the slowest"
            f" {max(step):.1f}, mean {statistics.mean(step):.2f}; ratio {rate / generated_rate:.3f}",
            flush=True,
        )
        if name != "generated":
            batches.close()  # type: ignore[attr-defined]
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
