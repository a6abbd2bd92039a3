"""How fast JPEG files become pixels on the device, and what that costs the thread that launches the training's kernels.

    python benchmarks/data/jpeg_decode.py --batch 512 --threads 14             # on a GPU
    python benchmarks/data/jpeg_decode.py --device cpu --batch 64 --threads 1

The files are the drawn ones of dataset=shapes, from the page cache. Variants: `ours, cpu` (libjpeg-turbo on threads
that are not Python's, and one copy), `ours, gpu` (nvJPEG on streams that go first), `Python's threads` (a file at a
time by torchvision, as a loader of threads has it) and `torchvision, gpu` (its nvJPEG operator, a batch a call).
"Beside" is another thread that keeps the device in large matrix products, as training does; "launches" is how long 400
small operations of another thread take meanwhile, over what they take alone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
import torch
import torchvision

from trainers.data import image_folder
from trainers.data.jpeg import JpegReader, decode_file, read_file, threads_per_process
from trainers.data.loading.prefetch import prefetch

Decode = Callable[[list[str]], object]
NUM_LAUNCHES = 400  # about a training step's
WIDTH = {"cuda": 8192, "cpu": 512}  # the matrices' width; a product takes an H200 some 1.5 ms


def variants(device: torch.device, num_threads: int) -> Iterator[tuple[str, Decode]]:
    yield "ours, cpu", JpegReader(device, num_threads, "cpu").read
    pool = ThreadPoolExecutor(num_threads)

    def by_python(paths: list[str]) -> object:
        flat = np.concatenate([image.ravel() for image in pool.map(decode_file, paths)])
        return torch.from_numpy(flat).to(device)

    yield "Python's threads", by_python
    if device.type == "cuda":
        yield "ours, gpu", JpegReader(device, num_threads, "gpu").read

        def by_torchvision(paths: list[str]) -> object:
            return torchvision.io.decode_jpeg([read_file(path) for path in paths], device=device)

        yield "torchvision, gpu", by_torchvision


@contextmanager
def busy(device: torch.device) -> Iterator[None]:
    """The device is never idle meanwhile, and its queue never long."""
    ended = threading.Event()

    def multiply() -> None:
        kind = torch.bfloat16 if device.type == "cuda" else torch.float32
        matrix = torch.randn(WIDTH[device.type], WIDTH[device.type], device=device, dtype=kind)
        while not ended.is_set():
            for _ in range(10):
                matrix @ matrix
            synchronise(device)

    thread = threading.Thread(target=multiply)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def rates(decode: Decode, batches: list[list[str]], device: torch.device) -> list[float]:
    """Images a second of each batch but the first, decoded in the thread and on the stream of the input pipeline."""

    def each() -> Iterator[float]:
        for paths in batches:
            started = time.perf_counter()
            decode(paths)
            synchronise(device)
            yield len(paths) / (time.perf_counter() - started)

    return list(prefetch(each(), device, depth=1))[1:]


def launching(device: torch.device, meanwhile: Callable[[], bool]) -> float:
    """Seconds that NUM_LAUNCHES small operations take, the median, as long as `meanwhile` is true."""
    small = torch.zeros(8, device=device)
    seconds: list[float] = []
    while meanwhile() or not seconds:
        started = time.perf_counter()
        for _ in range(NUM_LAUNCHES):
            small.add_(1)
        seconds.append(time.perf_counter() - started)
        synchronise(device)
    return statistics.median(seconds)


def slowdown(decode: Decode, batches: list[list[str]], device: torch.device) -> float:
    until = time.perf_counter() + 1
    alone = launching(device, lambda: time.perf_counter() < until)
    decoding = threading.Thread(target=rates, args=(decode, batches, device))
    decoding.start()
    beside = launching(device, decoding.is_alive)
    decoding.join()
    return beside / alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--threads", type=int, default=threads_per_process(1))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--size", type=int, default=2000, help="images that are drawn")
    asked = parser.parse_args()
    device = torch.device(asked.device)
    train = image_folder.shapes(asked.size).train
    rng = np.random.RandomState(0)
    batches = [list(train.paths(rng.randint(0, asked.size, asked.batch))) for _ in range(asked.repeats + 1)]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(
        f"{name}, PyTorch {torch.__version__}, torchvision {torchvision.__version__}; {asked.threads} threads, batches"
    )
    print(f"of {asked.batch}; images/s, median and quartiles of {asked.repeats}")
    for variant, decode in variants(device, asked.threads):
        alone = rates(decode, batches, device)
        with busy(device):
            beside = rates(decode, batches, device)
        cost = slowdown(decode, batches, device)
        print(f"{variant:18} alone {shown(alone):24} beside {shown(beside):24} launches x{cost:.2f}", flush=True)


def shown(figures: list[float]) -> str:
    low, middle, high = statistics.quantiles(figures, n=4)
    return f"{middle:,.0f} ({low:,.0f} to {high:,.0f})"


if __name__ == "__main__":
    main()
