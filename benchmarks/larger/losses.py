"""The first 100 losses of GPT-2's 124m size on the same batches, in two ways that should differ by rounding alone.

    python benchmarks/larger/losses.py precisions       # bf16 and fp8, on one GPU
    python benchmarks/larger/losses.py strategies       # DDP and sharded, in fp32 and in bf16, on all GPUs

A loss is the mean over all processes. Weights, batches and their order are the same in both ways.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
import torch.distributed as dist

from benchmarks.larger.steps import Case, config_of, finish, group, trained
from trainers.loop.process_group import join

LOSSES, TOKENS = 100, 32_768  # of a GPU's step
SHOWN = (1, 10, 25, 50, 75, 100)
PAIRS = {
    "precisions": [(("bf16", "ddp"), ("fp8", "ddp"))],
    "strategies": [(("fp32", "ddp"), ("fp32", "fsdp")), (("bf16", "ddp"), ("bf16", "fsdp"))],
}


def first_losses(precision: str, strategy: str) -> list[float]:
    world_size = int(os.environ["WORLD_SIZE"])
    config = config_of(Case("gpt_124m", precision, strategy, TOKENS * world_size), world_size, "grammar")
    shard = join(config)
    step, _, _ = trained(config, shard)
    losses = torch.stack([step() for _ in range(LOSSES)])
    dist.all_reduce(losses)
    dist.destroy_process_group()
    return [float(loss) / world_size for loss in losses]


def process(precision: str, strategy: str, file: str) -> None:
    losses = first_losses(precision, strategy)
    if os.environ["RANK"] == "0":
        Path(file).write_text(json.dumps(losses))


def compare(pair: tuple[tuple[str, str], tuple[str, str]], folder: Path, num_gpus: int) -> None:
    """Run both ways one after the other, and print their losses."""
    files = [folder / "_".join(way) for way in pair]
    gpus = list(range(num_gpus)) if "fsdp" in (strategy for _, strategy in pair) else [0]
    for number, (way, file) in enumerate(zip(pair, files, strict=True)):
        finish(group([__file__, "process", *way, str(file)], gpus, 29550 + number))
    if missing := [file.name for file in files if not file.exists()]:
        sys.exit(f"{missing[0]}: failed, see above")
    left, right = (json.loads(file.read_text()) for file in files)
    for number in SHOWN:
        values = f"{files[0].name} {left[number - 1]:.6f}, {files[1].name} {right[number - 1]:.6f}"
        print(f"gpt_124m on {len(gpus)}, step {number}: {values}")
    gaps = [abs(a - b) for a, b in zip(left, right, strict=True)]
    print(f"largest difference of the first 10 losses {max(gaps[:10]):.6f}, of {LOSSES} {max(gaps):.6f}; ", end="")
    print(f"mean {mean(gaps):.6f}", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["process"]:
        process(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=PAIRS)
    arguments = parser.parse_args()
    needed, num_gpus = 2 if arguments.what == "strategies" else 1, torch.cuda.device_count()
    if num_gpus < needed:
        parser.error(f"{arguments.what}: needs {needed} NVIDIA GPUs; {num_gpus} are visible")
    print(f"{num_gpus} x {torch.cuda.get_device_name()}, PyTorch {torch.__version__}", flush=True)
    with tempfile.TemporaryDirectory(prefix="losses_") as folder:
        for pair in PAIRS[arguments.what]:
            compare(pair, Path(folder), num_gpus)


if __name__ == "__main__":
    main()
