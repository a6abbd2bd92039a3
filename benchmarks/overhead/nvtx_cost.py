"""Cost of the NVTX ranges of `profile.nvtx=true` for a step.

    python benchmarks/overhead/nvtx_cost.py            # a few seconds, on a CPU or a GPU
    nsys profile -t nvtx,cuda python benchmarks/overhead/nvtx_cost.py    # with a listening profiler

A step enters and leaves three ranges: data, step and exchange. Many otherwise empty steps are timed in turns: without
ranges, with a stub in place of NVTX, and with PyTorch's NVTX. Printed is the rounds' median in microseconds with
minimum and maximum, and as a share of a step of 5 ms.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch

from tracking.measure.steps import Ranges, nvtx_ranges

STEP_MS = 5.0


def microseconds(ranges: Ranges, steps: int) -> float:
    """Microseconds of one step's ranges, called as the training's meter and the exchange's timer do."""
    ranges.begin_epoch(1)
    began = time.perf_counter()
    for step in range(steps):
        ranges.begin_step(step)
        ranges.enter("exchange")
        ranges.leave("exchange")
        ranges.end_step()
    sec = time.perf_counter() - began
    ranges.leave("epoch")
    return 1e6 * sec / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    kinds = {"without": Ranges(), "stub": Ranges(lambda name: None, lambda: None), "NVTX": nvtx_ranges(True)}
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(arguments.rounds):
        for name, ranges in kinds.items():
            taken[name].append(microseconds(ranges, arguments.steps))
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"torch {torch.__version__}, {where}; {arguments.rounds} rounds of {arguments.steps} steps")
    for name, values in taken.items():
        middle = statistics.median(values)
        share = middle / (1e3 * STEP_MS)
        print(f"{name:8} {middle:6.2f} us a step ({min(values):.2f} to {max(values):.2f}), {share:.3%} of 5 ms")


if __name__ == "__main__":
    main()
