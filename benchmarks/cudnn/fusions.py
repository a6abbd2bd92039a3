"""Do cuDNN's fusions of convolution, batch normalisation and ReLU beat today's step of ResNet-50, layer by layer?

    uv pip install nvidia-cudnn-frontend==1.18.0   # opens cuDNN's graph API; no dependency of the project
    python benchmarks/cudnn/fusions.py --commit COMMIT --csv fusions.csv    # some minutes on one GPU
    python benchmarks/cudnn/fusions.py --layers 3                           # those that move most bytes

`unfused` is what the compiled step does: PyTorch's convolution, and passes of the compiler's own kernels around it.

| pattern | unfused | fused |
|---|---|---|
| `convolution`, `gradients` | the convolution alone; its two gradients alone | |
| `statistics` | convolution; statistics of its output | one graph |
| `normalised` | normalise + ReLU; convolution; statistics | one graph, which reads the raw input |
| `wgrad` | gradient of the weights from the normalised input | one graph, which normalises the raw input again |
| `dgrad sums` | gradient of the input; backward of ReLU and normalisation | a graph up to the sums; their application |
| `dgrad` | as above | a graph up to ReLU's gradient; passes of the sums and their application |
| `dgrad weights` | as above | a graph of cuDNN's C interface; a pass of dx = a dz + b x + c |
| `norm`, `norm backward` | statistics, normalise + ReLU, and their backward pass | one graph each, no convolution |
| `norm add` | statistics, normalise + add + ReLU at a block's end | one graph |

Each graph is tried in bf16, then in fp16: cuDNN's guide gives fp16 alone for its precompiled fusions. Results are
compared with plain PyTorch's first; `error` is the largest relative error of an output, in the L2 norm. Times are
medians in ms with quartiles. GB are what each side has to move by the shapes, read and written. PyTorch keeps the
kernels that it chose first, so compare runs with and without `--heuristics`: `--only convolution,gradients`.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
from torch import Tensor

from benchmarks.cudnn import graphs, layers
from benchmarks.cudnn.layers import Layer, Operands
from benchmarks.cudnn.patterns import PATTERNS, Pattern
from benchmarks.cudnn.report import COLUMNS, Row, heading, printed
from benchmarks.steps.device_kernels import release
from trainers.ops.compiling import raise_recompile_limit

TYPES = {  # of a graph's tensors, and of values within it
    "bf16": (torch.bfloat16, torch.float32), "fp16": (torch.float16, torch.float32),
    "fp16 within": (torch.float16, torch.float16),
}  # fmt: skip
TOLERANCE = 0.02  # five times bf16's precision of 2^-8
WARMUP, FEW = 3, 5  # calls
HEAD_START = 20_000_000  # cycles that the GPU waits while the host launches all calls: the host's time is not measured


def milliseconds(call: Callable[[], object], calls: int) -> list[float]:
    for _ in range(WARMUP):
        call()
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(calls + 1)]
    torch.cuda._sleep(HEAD_START)
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in pairwise(marks)]


def error(results: list[Tensor], expected: tuple[Tensor, ...]) -> float:
    """Largest relative error of a graph's outputs, each in the L2 norm."""
    errors = []
    for result, right in zip(results, expected, strict=False):
        norm = torch.linalg.vector_norm(right, dtype=torch.float32)
        difference = result.float() - right.float().view_as(result)
        errors.append((torch.linalg.vector_norm(difference) / norm).item())
    return max(errors)


def fused(pattern: Pattern, row: Row, operands: Operands, handle: Any, within: torch.dtype, calls: int) -> Row:
    """Fill a row with a graph's times. Raises one of REFUSALS if cuDNN has no such graph or it computes wrongly."""
    assert pattern.graph is not None
    graph = pattern.graph(handle, operands, within)
    graph.build(lambda call: statistics.median(milliseconds(call, FEW)))
    graph()
    difference = error(graph.outputs, pattern.expected(operands))
    if not difference <= TOLERANCE:  # also where it is not a number
        raise ValueError(f"its results differ by {difference:.2g} from PyTorch's")

    def whole() -> None:
        graph()
        pattern.rest(graph, operands)

    return replace(row, fused=milliseconds(whole, calls), error=difference)


def measured(pattern: Pattern, layer: Layer, count: int, handle: Any, batch: int, calls: int) -> Row:
    """Times of both sides of a layer's pattern. If every type is refused, the row has the refusals."""
    operands = Operands(layer, batch, torch.bfloat16)
    moved = tuple(2 * values for values in pattern.moved(*layer.values(batch)))
    row = Row(str(layer), count, pattern.name, moved, layer.flop(batch), layer.normalises)
    row = replace(row, unfused=milliseconds(lambda: pattern.unfused(operands), calls))
    refusals: list[str] = []
    for name, (dtype, within) in TYPES.items() if pattern.graph is not None else ():
        try:
            if operands.x.dtype != dtype:
                operands = Operands(layer, batch, dtype)
            made = fused(pattern, row, operands, handle, within, calls)
            return replace(made, type=name, note="; ".join(refusals))
        except graphs.REFUSALS as refusal:
            refusals.append(f"{name}: {' '.join(str(refusal).split())[-120:]}")
    return replace(row, note="; ".join(refusals))


def measure(arguments: argparse.Namespace, handle: Any) -> Iterator[Row]:
    """Yield rows of the layers, those that move most bytes first, until the time is up."""
    began, counts = time.monotonic(), layers.layers()
    wanted = [pattern for pattern in PATTERNS if pattern.name in arguments.only.split(",")]
    ordered = sorted(counts, key=lambda layer: -counts[layer] * sum(layer.values(arguments.batch)))
    for layer in ordered[: arguments.layers]:
        if time.monotonic() - began > arguments.seconds:
            print(f"no time for {layer} x {counts[layer]}: give more --seconds")
            continue
        for pattern in [pattern for pattern in wanted if pattern.applies(layer)]:
            try:
                yield measured(pattern, layer, counts[layer], handle, arguments.batch, arguments.calls)
            except graphs.REFUSALS as failure:
                yield Row(str(layer), counts[layer], pattern.name, note=f"failed: {str(failure)[:200]}")
            release(torch.device("cuda"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=None, help="only so many layers")
    parser.add_argument("--only", default=",".join(pattern.name for pattern in PATTERNS), help="patterns, by commas")
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=110, help="no further layer begins later than this")
    parser.add_argument("--heuristics", action="store_true", help="leave cudnn.benchmark off, as launch.py does")
    parser.add_argument("--commit", default="unknown", help="commit that is measured")
    parser.add_argument("--csv", type=Path, default=Path("cudnn_fusions.csv"))
    arguments = parser.parse_args()
    if not graphs.installed():
        parser.error("this Python has no package `cudnn`: uv pip install nvidia-cudnn-frontend==1.18.0")
    if not torch.cuda.is_available():
        parser.error("no NVIDIA GPU is visible")
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = not arguments.heuristics
    raise_recompile_limit(1000)
    handle, versions = graphs.opened()
    where = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "batch": arguments.batch}
    where |= versions | {"cudnn.benchmark": torch.backends.cudnn.benchmark, "commit": arguments.commit}
    print(", ".join(f"{key} {value}" for key, value in where.items()), flush=True)
    print(heading())
    rows = []
    with arguments.csv.open("w", newline="", encoding="utf-8", buffering=1) as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, *where])
        for row in measure(arguments, handle):
            rows.append(row)
            writer.writerow([*row.cells(), *where.values()])
            print(row.line(), flush=True)
    printed(rows)


if __name__ == "__main__":
    main()
