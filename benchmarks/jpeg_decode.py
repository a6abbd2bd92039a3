"""How fast JPEG files become pixels on the device: ours and torchvision's, alone and beside a busy device.

    python benchmarks/jpeg_decode.py --batch 512 --threads 16             # on a GPU
    python benchmarks/jpeg_decode.py --device cpu --batch 64 --repeats 5

The files are the drawn ones of dataset=shapes, from the page cache. Variants: `ours, gpu` (nvJPEG on streams that go
first), `ours, cpu` (libjpeg-turbo on threads, then one copy), `ours, auto` (both share a batch, the default) and
`torchvision, gpu` (its nvJPEG operator, a batch a call).
"Beside" is another thread that keeps the device in large matrix products, as training does.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402

from trainers.data import image_folder  # noqa: E402
from trainers.data.jpeg import JpegReader  # noqa: E402
from trainers.data.jpeg_file import read_file  # noqa: E402
from trainers.data.prefetch import prefetch  # noqa: E402

Decode = Callable[[list[str]], object]
WIDTH = {"cuda": 8192, "cpu": 512}  # of the matrices; a product takes an H200 some 1.5 ms


def variants(device: torch.device, num_threads: int) -> Iterator[tuple[str, Decode]]:
    yield "ours, cpu", JpegReader(device, num_threads, "cpu").read
    if device.type == "cuda":
        yield "ours, gpu", JpegReader(device, num_threads, "gpu").read
        yield "ours, auto", JpegReader(device, num_threads, "auto").read

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--size", type=int, default=2000, help="images that are drawn")
    asked = parser.parse_args()
    device = torch.device(asked.device)
    train = image_folder.shapes(asked.size).train
    rng = np.random.RandomState(0)
    batches = [list(train.paths(rng.randint(0, asked.size, asked.batch))) for _ in range(asked.repeats + 1)]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, PyTorch {torch.__version__}, torchvision {torchvision.__version__}; images/s, median and quartiles")
    for variant, decode in variants(device, asked.threads):
        cells = []
        for beside in (False, True):
            if beside:
                with busy(device):
                    found = rates(decode, batches, device)
            else:
                found = rates(decode, batches, device)
            low, middle, high = statistics.quantiles(found, n=4)
            cells.append(f"{middle:9,.0f} ({low:,.0f}-{high:,.0f})")
        print(f"{variant:18} batch {asked.batch:5}   alone {cells[0]:30} beside {cells[1]}", flush=True)


if __name__ == "__main__":
    main()
