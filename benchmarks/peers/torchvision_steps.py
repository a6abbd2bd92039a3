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

A round steps every variant that is ready, each round in the reverse order of the one before, so that a linear drift
cancels. Rows: one a variant and round, with the standard deviation over its steps, and one ("all") over all of them,
whose `step_ms_sd_rounds` is that of the rounds' means. Rates are of mean steps. GMAC are those of a forward pass, by
PyTorch's counter; of Mask R-CNN, compare images/s: ours computes a fixed number of regions, empty ones included, and
torchvision's those that it samples, which differ with its random weights.
"""

from __future__ import annotations

import argparse
import csv
import gc
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
import torchvision

from benchmarks.peers.step_variants import PEERS, Step, candidates
from benchmarks.steps.device_kernels import wait
from benchmarks.steps.run_alone import composed
from trainers.loop import precision as precisions

BATCH = {"resnet50": 1024, "ssd": 128, "maskrcnn": 8}
WARMUP, SETTLING = 3, 3  # steps: of a new variant, and before each of its turns


class TooSlowError(BaseException):
    """Not an Exception, which the compiler would take for its own failure."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def steps_ms(step: Step, num: int, device: torch.device) -> list[float]:
    """Milliseconds from each step to the next: by CUDA events, or the host's clock on a CPU."""
    for _ in range(SETTLING):
        step()
    wait(device)
    if device.type != "cuda":
        times = [time.perf_counter()]
        for _ in range(num):
            step()
            times.append(time.perf_counter())
        return [1e3 * (after - before) for before, after in pairwise(times)]
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(num + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    wait(device)
    return [before.elapsed_time(after) for before, after in pairwise(marks)]


def prepared(workload: str, asked: argparse.Namespace, device: torch.device, end: float) -> dict[str, dict[str, Any]]:
    """By name, what has compiled and run: its step, GMAC, seconds that it took to get ready, and peak memory."""
    ready: dict[str, dict[str, Any]] = {}
    for name, build in candidates(workload):
        if asked.variants and name != "ours" and not any(part in name for part in asked.variants):
            continue
        left = end - time.perf_counter()
        if name != "ours" and left < 1:
            print(f"{workload:9} {name}: left out, since --limit is reached", flush=True)
            continue
        release(device)
        choose_kernels(workload, name)
        begun = time.perf_counter()
        try:
            # Ours has no limit: without it there is nothing to compare.
            with time_limit(0 if name == "ours" else min(asked.compile_limit, left)):
                step, gmac = build(asked.batch_size or BATCH[workload], device, asked.precision)
                for _ in range(WARMUP):
                    step()
                wait(device)
        except TooSlowError:
            print(f"{workload:9} {name}: left out, not ready after {time.perf_counter() - begun:.0f} s", flush=True)
            continue
        except Exception as error:
            if name == "ours":
                raise
            reason = (str(error).strip() or "no message").splitlines()[0][:200]
            print(f"{workload:9} {name}: left out, {type(error).__name__}: {reason}", flush=True)
            continue
        seconds, peak = time.perf_counter() - begun, ""
        if device.type == "cuda":
            peak = f"{torch.cuda.max_memory_allocated() / 2**30:.1f}"
        ready[name] = {"step": step, "gmac_forward": gmac, "warmup_sec": round(seconds, 1), "peak_gib": peak}
        print(f"{workload:9} {name}: ready after {seconds:.0f} s, {gmac:.2f} GMAC", flush=True)
    return ready


def measured(workload: str, asked: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    """The rows of a workload."""
    end = time.perf_counter() + asked.limit
    ready = prepared(workload, asked, device, end - asked.limit * asked.timing_share)
    turns: dict[str, list[list[float]]] = {name: [] for name in ready}
    longest = 0.0
    for number in range(asked.rounds):
        begun = time.perf_counter()
        if number and begun + longest > end:
            print(f"{workload:9} {number} of {asked.rounds} rounds, since --limit is reached", flush=True)
            break
        for name in list(ready) if number % 2 == 0 else reversed(ready):
            choose_kernels(workload, name)
            turns[name].append(steps_ms(ready[name]["step"], asked.steps, device))
        longest = max(longest, time.perf_counter() - begun)
        medians = ", ".join(f"{name} {statistics.median(values[-1]):.1f}" for name, values in turns.items())
        print(f"{workload:9} round {number}, ms: {medians}", flush=True)
    rows: list[dict[str, Any]] = []
    for name, rounds in turns.items():
        rows += summarised(rounds, asked.batch_size or BATCH[workload], {"variant": name} | ready[name])
    return [{"workload": workload, "precision": asked.precision} | row for row in rows]


def summarised(rounds: list[list[float]], batch_size: int, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row a round, and one over all of them."""
    means = [statistics.mean(steps) for steps in rounds]
    everything = [value for steps in rounds for value in steps]
    for number, steps in [*enumerate(rounds), ("all", everything)]:
        rate = batch_size * 1e3 / statistics.mean(steps)
        yield {
            "variant": about["variant"], "batch_size": batch_size, "gmac_forward": f"{about['gmac_forward']:.3f}",
            "round": number, "num_rounds": len(rounds) if number == "all" else 1, "num_steps": len(steps),
            "step_ms_median": f"{statistics.median(steps):.3f}", "step_ms_mean": f"{statistics.mean(steps):.3f}",
            "step_ms_sd_steps": deviation(steps), "step_ms_sd_rounds": deviation(means) if number == "all" else "",
            "images_per_sec": f"{rate:.5g}", "gmac_images_per_sec": f"{rate * about['gmac_forward']:.5g}",
            "warmup_sec": about["warmup_sec"], "peak_gib": about["peak_gib"],
        }  # fmt: skip


def choose_kernels(workload: str, name: str) -> None:
    """cudnn.benchmark tries all kernels for each new shape: a loss where shapes keep changing."""
    torch.backends.cudnn.benchmark = workload != "maskrcnn" or name == "ours"


def deviation(values: list[float]) -> str:
    return f"{statistics.stdev(values):.3f}" if len(values) > 1 else ""


def release(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def report(workload: str, rows: list[dict[str, Any]]) -> None:
    """Each variant's summary, fastest first, and how many times as fast ours is: in images, and in their GMAC."""
    whole = [row for row in rows if row["round"] == "all"]
    [ours] = [row for row in whole if row["variant"] == "ours"]
    print(f"\n{workload}: mean ± SD over steps (± SD over rounds) | images/s | GMAC an image | ours in images, in GMAC")
    for row in sorted(whole, key=lambda row: float(row["step_ms_mean"])):
        images, work = (float(ours[key]) / float(row[key]) for key in ("images_per_sec", "gmac_images_per_sec"))
        print(
            f"  {row['variant']:58} {row['step_ms_mean']} ± {row['step_ms_sd_steps'] or '?'} ms"
            f" (± {row['step_ms_sd_rounds'] or '?'}; n = {row['num_steps']} steps in {row['num_rounds']} rounds)"
            f" | {row['images_per_sec']} | {row['gmac_forward']} | x {images:.2f}, x {work:.2f}"
        )
    sys.stdout.flush()


def commit() -> str:
    git = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return git.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--variants", nargs="+", help="parts of the names of the peer's variants to run; default: all")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp16"), default="bf16")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--steps", type=int, default=8, help="timed steps of a variant's turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile-limit", type=float, default=25, help="seconds a peer's variant has to get ready")
    parser.add_argument("--limit", type=float, default=100, help="seconds of a model; never less than one round")
    parser.add_argument("--timing-share", type=float, default=0.3, help="part of --limit that is kept for the rounds")
    parser.add_argument("--commit", default=commit(), help="where the checkout has no .git")
    parser.add_argument("--out", type=Path, help="write the rows as CSV, after each model")
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch._dynamo.config.recompile_limit = 64  # the variants of a model share their code
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    machine = {"gpu": gpu, "torch": torch.__version__, "torchvision": torchvision.__version__, "commit": asked.commit}
    print(", ".join(f"{key} {value}" for key, value in machine.items()), flush=True)
    precisions.apply(composed([f"precision={asked.precision}"]).precision)
    rows: list[dict[str, Any]] = []
    for workload in asked.models:
        own = [row | machine for row in measured(workload, asked, device)]
        report(workload, own)
        rows += own
        if asked.out:
            with asked.out.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        torch._dynamo.reset()


if __name__ == "__main__":
    main()
