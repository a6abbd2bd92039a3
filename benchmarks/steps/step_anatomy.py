"""Where the time of a training step goes: on the device, on the host, and in exchanging gradients.

    python benchmarks/steps/step_anatomy.py model=maskrcnn dataset=shapes precision=bf16 gpus=1
    python benchmarks/steps/step_anatomy.py model=resnet50 dataset=synthetic precision=bf16 gpus=2 --variants all

Options are those of launch.py. Steps are a run's (its data, precision, compiled parts and DDP), without Lightning, and
for fp16 without the loss scaler. Printed are medians of the slowest process (quartiles in brackets):

    step     ms from one step to the next, by CUDA events; without an exchange, each process has its own
    host     ms to launch a step on an idle device; if this exceeds `busy`, the host limits the rate
    busy     ms of a step during which a kernel or copy runs
    compute  sum of ms of all kernels except NCCL's; more than with one process: the exchange slows them down
    nccl     sum of ms of NCCL's kernels, which also wait for the other processes
    kernels  kernels and copies of a step

Variants, of several processes:

    after        overlap_grad_reduce=false: compiled whole, one exchange after the last gradient
    overlapped   overlap_grad_reduce=true: compiled in pieces, gradients are exchanged during the backward pass
    one bucket   compiled whole; DDP exchanges all gradients at once
    apart        the first two without any exchange: the step alone
"""

from __future__ import annotations

import argparse
import gc
import os
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.steps.device_kernels import Kernel, longest, recorded, summed, wait
from benchmarks.steps.run_alone import AUTOCAST, composed
from conf.schema import RunConfig
from trainers.loop import ddp, precision
from trainers.loop.build import make_data, make_module
from trainers.loop.process_group import join
from trainers.workload import Batch, Data, Shard, TrialModule, load_workload, viewed

VARIANTS = ("after", "overlapped", "one bucket", "after, apart", "overlapped, apart")
WARMUP, PROFILED = 5, 5  # steps
ONE_BUCKET_MB = 1 << 20  # larger than any model's gradients
COLUMNS = ("step", "host", "busy", "compute", "nccl", "kernels")


class Anatomy(NamedTuple):
    """A process's values by step, in the order of COLUMNS; its rate; its kernels."""

    values: tuple[list[float], ...]
    samples_per_sec: float
    kernels: list[Kernel]


class Request(NamedTuple):
    overrides: list[str]
    variants: list[str]
    steps: int
    top: int
    port: int


class Step(nn.Module):
    """A module whose forward is the training step, so that DDP's hooks run."""

    def __init__(self, module: TrialModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: Batch) -> torch.Tensor:
        return self.module.training_step(batch, 0)  # type: ignore[return-value]


class Training:
    """A variant of the training, ready to step."""

    def __init__(self, config: RunConfig, data: Data, module: TrialModule, shard: Shard, variant: str) -> None:
        torch.compiler.reset()
        self.device, self.module = shard.device, module.to(shard.device).train()
        if config.compiled():
            module.compile_hot_path()
        self.model: Any = Step(module)
        self.gradients = ddp.Gradients(module) if variant == "after" and shard.world_size > 1 else None
        self.wrapped = shard.world_size > 1 and not variant.startswith("after")
        torch._dynamo.config.optimize_ddp = variant.startswith("overlapped")
        if self.wrapped:
            bucket: dict[str, Any] = {"bucket_cap_mb": ONE_BUCKET_MB} if variant == "one bucket" else {}
            self.model = DistributedDataParallel(self.model, **ddp.options(), **bucket)
        self.apart = self.wrapped and variant.endswith("apart")
        self.optimizer = module.configure_optimizers()
        self.kind = AUTOCAST.get(config.precision.name)

    def step(self, batch: Batch) -> None:
        exchange: AbstractContextManager[Any] = self.model.no_sync() if self.apart else nullcontext()
        self.optimizer.zero_grad()  # type: ignore[union-attr]
        with exchange:
            with torch.autocast(self.device.type, self.kind or torch.bfloat16, enabled=self.kind is not None):
                loss = self.model(batch)
            loss.backward()
        if self.gradients:
            self.gradients.average()
        self.optimizer.step()  # type: ignore[union-attr]


def endless(loader: Any) -> Iterator[Batch]:
    epoch = 0
    while True:
        loader.set_epoch(epoch)
        yield from loader
        epoch += 1


def steps_ms(training: Training, batches: Iterator[Batch], num: int) -> tuple[list[float], float]:
    """Milliseconds of each step, and samples a second of this process."""
    on_gpu = training.device.type == "cuda"
    marks: list[Any] = []
    samples = 0
    for _ in range(num + 1):
        if on_gpu:
            marks.append(torch.cuda.Event(enable_timing=True))
            marks[-1].record()
        else:
            marks.append(time.perf_counter())
        batch = next(batches)
        training.step(batch)
        samples += batch["num_samples"] if len(marks) <= num else 0
    wait(training.device)
    durations = [start.elapsed_time(end) if on_gpu else 1e3 * (end - start) for start, end in pairwise(marks)]
    return durations, samples / sum(durations) * 1e3


def host_ms(training: Training, batches: Iterator[Batch], num: int) -> list[float]:
    durations = []
    for _ in range(num):
        batch = next(batches)
        wait(training.device)
        if dist.get_world_size() > 1:
            dist.barrier()
            wait(training.device)
        begun = time.perf_counter()
        training.step(batch)
        durations.append(1e3 * (time.perf_counter() - begun))
    return durations


def anatomy(training: Training, batches: Iterator[Batch], examples: list[Batch], num: int) -> Anatomy:
    for example in examples:
        for _ in range(3):
            training.step(example)
    for _ in range(WARMUP):
        training.step(next(batches))
    step, rate = steps_ms(training, batches, num)
    host = host_ms(training, batches, max(3, num // 4))
    kernels = recorded(lambda: training.step(next(batches)), PROFILED, training.device)
    return Anatomy((step, host, *([value] for value in summed(kernels, PROFILED))), rate, kernels)


def shown(values: list[float]) -> str:
    if len(values) < 4:
        return f"{statistics.median(values):.2f}"
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def measure(rank: int, request: Request) -> None:
    config = composed(request.overrides)
    size = config.world_size()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(request.port)}
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // size))  # as launch.py does
    shard = join(config)
    precision.apply(config.precision)
    workload = load_workload(config)
    data = make_data(workload, config.dataset)
    if rank == 0:
        where = torch.cuda.get_device_name() if config.on_gpu() else f"CPU, {torch.get_num_threads()} threads"
        print(f"{size} x {where}, PyTorch {torch.__version__}; {' '.join(request.overrides)}; {request.steps} steps")
    for variant in request.variants:
        torch.manual_seed(config.seed)
        module = make_module(workload, data, config)
        data = viewed(data, module)
        training = Training(config, data, module, shard, variant)
        batches = endless(data.train_loader(config.device_batch_size(), config.seed, shard))
        own = anatomy(training, batches, data.example_batches(config.device_batch_size(), shard.device), request.steps)
        batches.close()  # type: ignore[attr-defined]
        del training, module, batches
        gc.collect()  # a module and its compiled code refer to each other
        anatomies: list[Any] = [None] * size
        dist.all_gather_object(anatomies, own)
        if rank == 0:
            report(variant, anatomies, request.top)
    dist.destroy_process_group()


def report(variant: str, anatomies: list[Anatomy], top: int) -> None:
    medians = [statistics.median(process.values[0]) for process in anatomies]
    slowest = anatomies[medians.index(max(medians))]
    cells = [f"{name} {shown(values)}" for name, values in zip(COLUMNS, slowest.values, strict=True)]
    rate = sum(process.samples_per_sec for process in anatomies)
    each = f"  step of each {', '.join(f'{median:.2f}' for median in medians)}" if len(anatomies) > 1 else ""
    print(f"{variant:17} {rate:8,.0f} samples/s  {'  '.join(cells)}{each}")
    for line in longest(slowest.kernels, PROFILED, top):
        print(line)
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="options of launch.py")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--variants", default="after", help="'all', or variants separated by semicolons")
    parser.add_argument("--top", type=int, default=0, help="number of longest kernels to list")
    arguments = parser.parse_intermixed_args()
    chosen = [variant.strip() for variant in arguments.variants.split(";")]
    variants = list(VARIANTS) if arguments.variants == "all" else chosen
    if unknown := [variant for variant in variants if variant not in VARIANTS]:
        parser.error(f"--variants {unknown[0]!r}: allowed: all, {'; '.join(VARIANTS)}")
    if arguments.steps < 1 or arguments.top < 0:
        parser.error(f"--steps {arguments.steps} --top {arguments.top}: give at least 1 and at least 0")
    config = composed(arguments.overrides)
    num_visible = torch.cuda.device_count()
    if config.gpus == "auto" or config.num_gpus() > num_visible:
        parser.error(f"gpus={config.gpus}: give 0 (the CPU) to {num_visible}, the number of visible GPUs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    request = Request(arguments.overrides, variants, arguments.steps, arguments.top, port)
    torch.multiprocessing.spawn(measure, (request,), nprocs=config.world_size())


if __name__ == "__main__":
    main()
