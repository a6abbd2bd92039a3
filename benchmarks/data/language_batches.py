"""Time to make a batch for a language model, generated and from files, without training.

    python benchmarks/data/language_batches.py                     # on the GPU, else on the CPU
    python benchmarks/data/language_batches.py --device cpu --steps 5

Prints the median and quartiles of the milliseconds from one batch to the next, and the median's tokens/s, for each
source. Sources are `dataset=grammar` of orders 1, 2 and 8, and files of random ids, written to a temporary folder. On a
GPU it also prints whether its batches equal the CPU's. It takes a minute.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
import torch

from trainers.data.language import LanguageData, grammar, tokens
from trainers.data.tokens import GPT2, write_tokens
from trainers.workload import Shard

LENGTH = 1024


def batches_ms(data: LanguageData, batch_size: int, steps: int, device: torch.device) -> list[float]:
    """Milliseconds from each batch to the next, without the first one, synchronised with the device after each."""
    data.example_batches(batch_size, device)  # compiles the generator
    times = []
    for batch in data.train_loader(batch_size, 1, Shard(0, 1, device)):
        int(batch["targets"][-1, -1])
        times.append(time.perf_counter())
        if len(times) == steps + 1:
            break
    return [1e3 * (after - before) for before, after in pairwise(times)]


def sources(batch_size: int, steps: int, folder: Path) -> Iterator[tuple[str, LanguageData]]:
    for order in (1, 2, 8):
        yield f"grammar, order {order}", grammar(order=order, sequence_length=LENGTH)
    ids = np.random.RandomState(0).randint(0, GPT2.vocabulary, (steps + 2) * batch_size)
    write_tokens(folder / "train.bin", ids, GPT2)
    write_tokens(folder / "val.bin", ids[: 2 * LENGTH], GPT2)
    yield "files of tokens", tokens(str(folder), LENGTH)


def same_on_cpu(device: torch.device) -> bool:
    data = grammar(order=3, train_tokens=128 * LENGTH)
    both = [data.train_loader(64 * LENGTH, 1, Shard(0, 1, where)) for where in (device, torch.device("cpu"))]
    return all(torch.equal(first["inputs"].cpu(), second["inputs"]) for first, second in zip(*both, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=524_288, help="tokens")
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    device = torch.device(arguments.device, 0) if arguments.device == "cuda" else torch.device(arguments.device)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in sources(arguments.batch_size, arguments.steps, Path(folder)):
            times = batches_ms(data, arguments.batch_size, arguments.steps, device)
            low, middle, high = statistics.quantiles(times, n=4)
            rate = arguments.batch_size / middle / 1e3
            print(f"{name:20} {middle:9.2f} ms ({low:.2f} to {high:.2f}), {rate:8.1f} million tokens/s", flush=True)
    if device.type == "cuda":
        print(f"batches equal the CPU's: {same_on_cpu(device)}")


if __name__ == "__main__":
    main()
