"""Rates of our training steps and of torchvision's models, as they come and tuned, in turns on one GPU.

    python benchmarks/peers/torchvision_steps.py --models ssd --steps 8 --rounds 3 --out ssd.csv
    python benchmarks/peers/torchvision_steps.py --models resnet50 ssd maskrcnn --precision bf16 --out peers.csv

All variants have the same shapes, precision, number of objects, generated batches on the device, SGD with momentum,
and cudnn.benchmark. The last is off for torchvision's Mask R-CNN, whose shapes change with every step. Lightning is not
used. Ours also changes the colours of SSD's images.

Peers: SSD's is torchvision's SSD class with our ResNet-34 backbone, default boxes, classes and image size.
ssd300_vgg16 does more than twice the work, so compare it by images/s x GMAC. Mask R-CNN's is maskrcnn_resnet50_fpn
with a partly frozen backbone.

Tunings: as documented, with autocast; with channels_last, fused SGD and no resizing of images of the right size; with
the network compiled; as CUDA graphs; compiled whole. A variant that fails or takes longer than --compile-limit is left
out, with a message.

GMAC are those of a forward pass by PyTorch's counter. For Mask R-CNN, compare images/s: ours computes a fixed number of
regions, empty ones included, torchvision's only its samples, which vary with its random weights.
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
WARMUP = 3  # untimed steps of a new variant


def prepared(
    workload: str, arguments: argparse.Namespace, device: torch.device, end: float
) -> dict[str, beside.Variant]:
    """Variants that have compiled and run, by name, with GMAC, warm-up time and peak memory."""
    ready: dict[str, beside.Variant] = {}
    batch_size = arguments.batch_size or BATCH[workload]
    for name, build in candidates(workload):
        if arguments.variants and name != beside.OURS and not any(part in name for part in arguments.variants):
            continue
        left = end - time.perf_counter()
        if name != beside.OURS and left < 1:
            print(f"{workload:9} {name}: left out: --limit is reached", flush=True)
            continue
        release(device)
        choose_kernels(workload, name)
        begun = time.perf_counter()
        try:
            # No limit for ours: without it there is nothing to compare.
            with time_limit(0 if name == beside.OURS else min(arguments.compile_limit, left)):
                step, gmac = build(batch_size, device, arguments.precision)
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


def measured(workload: str, arguments: argparse.Namespace, device: torch.device) -> list[beside.Row]:
    end, timing_sec = time.perf_counter() + arguments.limit, arguments.limit * arguments.timing_share
    ready = prepared(workload, arguments, device, end - timing_sec)
    seconds = max(timing_sec, end - time.perf_counter())
    batch_size = arguments.batch_size or BATCH[workload]
    compared = beside.Comparison(NAMES[workload], batch_size, "images/s", arguments.precision)
    with arguments.turns:
        return beside.in_turns(compared, ready, arguments, device, partial(choose_kernels, workload), seconds)


def choose_kernels(workload: str, name: str) -> None:
    """Set cudnn.benchmark, which tries all kernels for each new shape; off where shapes keep changing."""
    torch.backends.cudnn.benchmark = workload != "maskrcnn" or name == "ours"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside.add_arguments(parser, steps=8, rounds=5)
    parser.add_argument("--models", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--variants", nargs="+", help="parts of the names of the peers' variants to run; default: all")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--compile-limit", type=float, default=25, help="seconds for a peer's variant to get ready")
    parser.add_argument("--limit", type=float, default=100, help="seconds of a model; at least one round runs")
    parser.add_argument("--timing-share", type=float, default=0.3, help="part of --limit reserved for the rounds")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch._dynamo.config.recompile_limit = 64  # the variants of a model share their code
    precisions.apply(composed([f"precision={arguments.precision}"]).precision)
    rows: list[beside.Row] = []
    for workload in arguments.models:
        rows += measured(workload, arguments, device)
        beside.report(rows, arguments.out)
        torch._dynamo.reset()


if __name__ == "__main__":
    main()
