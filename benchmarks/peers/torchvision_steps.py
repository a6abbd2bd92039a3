"""Our training steps beside those of torchvision's models, from as they come to tuned, in turns on one GPU.

    python benchmarks/peers/torchvision_steps.py --models ssd --steps 8 --rounds 3 --out ssd.csv
    python benchmarks/peers/torchvision_steps.py --models resnet50 ssd maskrcnn --precision bf16 --out peers.csv

All get the same shapes, precision and number of objects, generated batches that lie on the device, SGD with momentum
and cudnn.benchmark, which is off for torchvision's Mask R-CNN, since the shapes in it change with every step. SSD's
peer of the same work is torchvision's SSD class with our ResNet-34 backbone, default boxes, classes and image size;
ssd300_vgg16 does more than twice the work, so compare it by images/s x GMAC. Mask R-CNN's is maskrcnn_resnet50_fpn,
its backbone partly frozen. Ours also changes the colours of SSD's images; Lightning is around neither. Each peer is
timed as its documentation has it (autocast), with channels_last, fused SGD and no resizing of images that have their
size, then with its network compiled, as CUDA graphs, and compiled whole; what fails or takes longer than --compile-
limit is said and left out.

GMAC are those of a forward pass, by PyTorch's counter; of Mask R-CNN, compare images/s: ours computes a fixed number of
regions, empty ones included, and torchvision's those that it samples, which differ with its random weights.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch

from benchmarks.peers import beside
from benchmarks.peers.step_variants import PEERS, candidates
from benchmarks.peers.turns import TooSlowError, time_limit
from benchmarks.steps.device_kernels import release, wait
from benchmarks.steps.run_alone import composed
from trainers.loop import precision as precisions

BATCH = {"resnet50": 1024, "ssd": 128, "maskrcnn": 8}
NAMES = {"resnet50": "ResNet-50", "ssd": "SSD300", "maskrcnn": "Mask R-CNN"}
WARMUP = 3  # steps of a new variant


def prepared(workload: str, asked: argparse.Namespace, device: torch.device, end: float) -> dict[str, beside.Variant]:
    """By name, what has compiled and run, with its GMAC, the seconds that it took to get ready, and its peak memory."""
    ready: dict[str, beside.Variant] = {}
    batch_size = asked.batch_size or BATCH[workload]
    for name, build in candidates(workload):
        if asked.variants and name != beside.OURS and not any(part in name for part in asked.variants):
            continue
        left = end - time.perf_counter()
        if name != beside.OURS and left < 1:
            print(f"{workload:9} {name}: left out, since --limit is reached", flush=True)
            continue
        release(device)
        choose_kernels(workload, name)
        begun = time.perf_counter()
        try:
            # Ours has no limit: without it there is nothing to compare.
            with time_limit(0 if name == beside.OURS else min(asked.compile_limit, left)):
                step, gmac = build(batch_size, device, asked.precision)
                for _ in range(WARMUP):
                    step()
                wait(device)
        except TooSlowError:
            print(f"{workload:9} {name}: left out, not ready after {time.perf_counter() - begun:.0f} s", flush=True)
            continue
        except Exception as error:
            if name == beside.OURS:
                raise
            reason = (str(error).strip() or "no message").splitlines()[0][:200]
            print(f"{workload:9} {name}: left out, {type(error).__name__}: {reason}", flush=True)
            continue
        seconds = time.perf_counter() - begun
        about = {"gmac_forward": f"{gmac:.3f}", "warmup_sec": f"{seconds:.1f}"}
        if device.type == "cuda":
            about["peak_gib"] = f"{torch.cuda.max_memory_allocated() / 2**30:.1f}"
        ready[name] = beside.Variant(step, batch_size, about=about)
        print(f"{workload:9} {name}: ready after {seconds:.0f} s, {gmac:.2f} GMAC", flush=True)
    return ready


def measured(workload: str, asked: argparse.Namespace, device: torch.device) -> list[beside.Row]:
    end, of_rounds = time.perf_counter() + asked.limit, asked.limit * asked.timing_share
    ready = prepared(workload, asked, device, end - of_rounds)
    seconds = max(of_rounds, end - time.perf_counter())
    compared = beside.Comparison(NAMES[workload], asked.batch_size or BATCH[workload], "images/s", asked.precision)
    with asked.turns:
        return beside.in_turns(compared, ready, asked, device, partial(choose_kernels, workload), seconds)


def choose_kernels(workload: str, name: str) -> None:
    """cudnn.benchmark tries all kernels for each new shape: a loss where shapes keep changing."""
    torch.backends.cudnn.benchmark = workload != "maskrcnn" or name == "ours"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside.add_arguments(parser, steps=8, rounds=5)
    parser.add_argument("--models", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--variants", nargs="+", help="parts of the names of the peer's variants to run; default: all")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--compile-limit", type=float, default=25, help="seconds a peer's variant has to get ready")
    parser.add_argument("--limit", type=float, default=100, help="seconds of a model; never less than one round")
    parser.add_argument("--timing-share", type=float, default=0.3, help="part of --limit that is kept for the rounds")
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch._dynamo.config.recompile_limit = 64  # the variants of a model share their code
    precisions.apply(composed([f"precision={asked.precision}"]).precision)
    rows: list[beside.Row] = []
    for workload in asked.models:
        rows += measured(workload, asked, device)
        beside.report(rows, asked.out)
        torch._dynamo.reset()


if __name__ == "__main__":
    main()
