"""Rate of decoding JPEG files to the device, and how much that slows the thread that launches kernels.

    python benchmarks/data/jpeg_decode.py --batch 512 --threads 14             # on a GPU
    python benchmarks/data/jpeg_decode.py --device cpu --batch 64 --threads 1

The files are drawn as for dataset=shapes, and read from the page cache. Variants:

    ours, cpu           libjpeg-turbo on native threads, and one copy to the device
    ours, gpu           nvJPEG on streams of high priority
    Python's threads    torchvision, one file at a time on a pool of Python threads
    torchvision, gpu    torchvision's nvJPEG operator, one batch a call

Printed are the rates "alone" and "beside" another thread that keeps the device busy with matrix products, as training
does. "launches" is the time of 400 small operations of another thread during decoding, relative to their time alone.
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
NUM_LAUNCHES = 400  # about as many as in a training step
WIDTH = {"cuda": 8192, "cpu": 512}  # width of the matrices; a product takes about 1.5 ms on an H200


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
    """Keep the device busy, with a short queue."""
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
    """Images a second of each batch, without the first one; decoded in the input pipeline's thread and stream."""

    def each() -> Iterator[float]:
        for paths in batches:
            started = time.perf_counter()
            decode(paths)
            synchronise(device)
            yield len(paths) / (time.perf_counter() - started)

    return list(prefetch(each(), device, depth=1))[1:]


def launching(device: torch.device, condition: Callable[[], bool]) -> float:
    """Median seconds of NUM_LAUNCHES small operations, repeated while `condition` is true."""
    small = torch.zeros(8, device=device)
    seconds: list[float] = []
    while condition() or not seconds:
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
    parser.add_argument("--size", type=int, default=2000, help="number of images to draw")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    train = image_folder.shapes(arguments.size).train
    rng = np.random.RandomState(0)
    batches = [list(train.paths(rng.randint(0, arguments.size, arguments.batch))) for _ in range(arguments.repeats + 1)]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, PyTorch {torch.__version__}, torchvision {torchvision.__version__}; {arguments.threads} threads,")
    print(f"batches of {arguments.batch}; images/s, median and quartiles of {arguments.repeats}")
    for variant, decode in variants(device, arguments.threads):
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
