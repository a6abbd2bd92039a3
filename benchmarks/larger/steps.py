"""Steps of models larger than a GPU: rates in bf16 and fp8, with DDP and sharded, and memory beside its forecast.

    python benchmarks/larger/steps.py --commit $(git rev-parse --short HEAD)     # on two H100s, about four minutes
    python benchmarks/larger/steps.py --only one                                # on one GPU: 1.5b
    python benchmarks/larger/steps.py --only llama_8b
    python benchmarks/larger/steps.py --only llama_8b --precision bf16 --options model.hparams.micro_batch_size=16384

First GPT-2 XL's size (1.5b) on one GPU, in sequences of 1,024: bf16 on the first GPU and fp8 on the second at the same
time.

Then on all GPUs together: 1.5b with DDP and sharded, and Llama 3 8B sharded, in sequences of 8,192 with activation
checkpointing. A case that does not fit prints that; the cases of another size still run. `--precision`, `--tokens` and
`--options` change these cases.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
import torch.distributed as dist

from benchmarks.steps.run_alone import composed
from conf.schema import RunConfig
from tracking.request import gpu_memory
from trainers.loop import ddp, fsdp, precision
from trainers.loop.build import make_data, make_module
from trainers.loop.process_group import join
from trainers.loop.warmup import CapturedSteps
from trainers.ops.sharding import clip
from trainers.workload import Shard, TrialModule, load_workload


class Case(NamedTuple):
    recipe: str
    precision: str
    strategy: str
    tokens: int  # of a step, all GPUs together
    steps: int = 3  # timed
    options: tuple[str, ...] = ()  # further ones, as for launch.py

    def __str__(self) -> str:
        return " ".join((self.recipe, self.precision, self.strategy, *self.options))


ONE = [Case("gpt_1.5b", name, "ddp", 131_072) for name in ("bf16", "fp8")]
SEVERAL = [
    *(Case("gpt_1.5b", name, way, 131_072) for way, name in (("ddp", "bf16"), ("fsdp", "bf16"), ("fsdp", "fp8"))),
    *(Case("llama_8b", name, "fsdp", 131_072, 2) for name in ("bf16", "fp8")),
]


def config_of(case: Case, num_gpus: int, dataset: str = "synthetic") -> RunConfig:
    model = case.recipe.partition("_")[0]
    options = [f"model={model}", f"recipe={case.recipe}", f"dataset={dataset}", f"precision={case.precision}"]
    config = composed([*options, f"strategy={case.strategy}", f"gpus={num_gpus}", *case.options])
    return dataclasses.replace(config, batch_size=case.tokens // num_gpus)


def trained(config: RunConfig, shard: Shard) -> tuple[Callable[[], torch.Tensor], TrialModule, Callable[[], None]]:
    """A step that returns its loss, the module, and a function that captures the step as the loop does."""
    precision.apply(config.precision)
    torch.manual_seed(1)
    workload = load_workload(config)
    data = make_data(workload, config.dataset)
    with torch.device("meta") if config.sharded() else shard.device:
        module = make_module(workload, data, config)
    if config.precision.name == "fp8":
        module.use_fp8()
    if config.sharded():
        fsdp.shard_module(module, shard, config.precision.name)
    module.compile_hot_path()
    optimizer: Any = module.configure_optimizers()
    gradients = ddp.Gradients(module) if shard.world_size > 1 and not config.sharded() else None
    batches: Iterator[Any] = iter(data.train_loader(config.device_batch_size(), 1, shard))

    autocast = partial(torch.autocast, "cuda", torch.bfloat16, cache_enabled=False)

    def step() -> torch.Tensor:
        with autocast():
            loss: Any = module.training_step(next(batches), 0)
        module.backward(loss)
        if gradients is not None:
            gradients.average()
        if (most := config.model.hparams["clip_norm"]) is not None:
            clip([parameter.grad for parameter in module.parameters()], most)
        optimizer.step()
        return torch.as_tensor(loss.detach())

    def capture() -> None:
        if not config.sharded():
            CapturedSteps(module, autocast).capture(next(batches))

    return step, module, capture


def measure(case: Case, shard: Shard) -> None:
    config = config_of(case, shard.world_size)
    length = config.dataset.sequence_length or 1024
    name = f"{case} on {shard.world_size}, sequence {length:,}"
    predicted = gpu_memory.estimated_memory(config, case.strategy, shard.world_size)
    assert predicted is not None
    gc.collect()  # frees the module before: a sharded one refers to itself
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    step, module, capture = trained(config, shard)
    step()  # compiles
    step()
    capture()
    step()
    torch.cuda.synchronize()
    warm = time.perf_counter() - begun
    seconds, losses = [], []
    for _ in range(case.steps):
        dist.barrier()
        begun = time.perf_counter()
        losses.append(step())
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    rates = [case.tokens / each / shard.world_size for each in seconds]
    flops = (module.flops_per_sample() or 0.0) * mean(rates)
    peak = torch.cuda.max_memory_allocated()
    if shard.rank == 0:
        spread = f" ± {stdev(rates) / len(rates) ** 0.5:,.0f}" if len(rates) > 1 else ""
        print(
            f"{name}: {mean(rates):,.0f}{spread} tokens/s a GPU (n={len(rates)} steps of {case.tokens:,} tokens),"
            f" {flops / 1e12:.0f} model TFLOP/s; warm after {warm:.0f} s; loss {float(losses[-1]):.3f}\n"
            f"    memory: measured {peak / 1e9:.1f} GB, predicted {predicted} ({predicted.total / peak - 1:+.1%})",
            flush=True,
        )


def process(arguments: argparse.Namespace) -> None:
    """Run a process's cases."""
    world_size = int(os.environ["WORLD_SIZE"])
    cases = [Case(*case) for case in json.loads(arguments.cases)]
    shard = join(config_of(cases[0], world_size))
    for case in cases:
        try:
            measure(case, shard)
        except torch.OutOfMemoryError as error:
            print(f"{case}: does not fit: {str(error)[:150]}", flush=True)
            if world_size > 1:
                os._exit(1)  # The other process waits within a step.
        torch._dynamo.reset()
    dist.destroy_process_group()


def measuring(cases: list[Case]) -> list[str]:
    return [__file__, "--cases", json.dumps(cases)]


def group(arguments: list[str], gpus: list[int], port: int) -> list[subprocess.Popen[bytes]]:
    """Start a process of Python for each GPU, with these arguments. Each sees only its own GPU."""
    started = []
    for rank, gpu in enumerate(gpus):
        ranks = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": len(gpus), "MASTER_PORT": port}
        ranks["CUDA_VISIBLE_DEVICES"] = gpu
        environment = os.environ | {"MASTER_ADDR": "127.0.0.1"} | {key: str(value) for key, value in ranks.items()}
        started.append(subprocess.Popen([sys.executable, *arguments], env=environment))
    return started


def finish(processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait for all processes. If one fails, kill the others, which would wait for it forever."""
    while any(each.poll() is None for each in processes):
        if any(each.poll() for each in processes):
            for each in processes:
                each.kill()
        time.sleep(0.2)


def alone(num_gpus: int, steps: int | None) -> None:
    waiting = []
    for number, case in enumerate(ONE):
        timed = case._replace(steps=steps or case.steps)
        waiting += group(measuring([timed]), [number % num_gpus], 29520 + number)
        if num_gpus == 1:
            finish(waiting)
    finish(waiting)


def several(arguments: argparse.Namespace) -> list[Case]:
    """Return the cases on several GPUs that the arguments choose, with their options."""
    given = {key: value for key in ("tokens", "steps") if (value := getattr(arguments, key))}
    return [
        case._replace(**given, options=tuple(arguments.options))
        for case in SEVERAL
        if arguments.only in (None, "several", case.recipe) and arguments.precision in (None, case.precision)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("one", "several", "gpt_1.5b", "llama_8b"), help="run only these cases")
    parser.add_argument("--precision", choices=("bf16", "fp8"), help="on several GPUs, run only these cases")
    parser.add_argument("--tokens", type=int, help="on several GPUs: tokens of a step, all together (default: 131072)")
    parser.add_argument("--steps", type=int, help="timed steps (default: 3, and 2 of 8b)")
    parser.add_argument("--options", nargs="+", default=[], help="on several GPUs: further options, as for launch.py")
    parser.add_argument("--commit", default="unknown", help="commit that is measured, for the heading")
    parser.add_argument("--cases", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cases:
        process(arguments)
        return
    num_gpus = torch.cuda.device_count()
    if not num_gpus:
        parser.error("needs an NVIDIA GPU")
    gpus = f"{num_gpus} x {torch.cuda.get_device_name()}"
    print(f"{gpus}, PyTorch {torch.__version__}, commit {arguments.commit}", flush=True)
    if arguments.only in (None, "one"):
        alone(num_gpus, arguments.steps)
    chosen = several(arguments)
    for recipe in ("gpt_1.5b", "llama_8b"):
        cases = [case for case in chosen if case.recipe == recipe]
        if num_gpus >= 2 and cases:
            finish(group(measuring(cases), list(range(num_gpus)), 29530 + len(recipe)))


if __name__ == "__main__":
    main()
