"""Write IDX files of Fashion-MNIST's sizes, to measure speed where the real files cannot be downloaded.

    python benchmarks/data/fashion_mnist_sized.py FOLDER
    python launch.py dataset=fashion_mnist dataset.path=FOLDER gpus=1

The images are scikit-learn's handwritten digits, enlarged to 28x28, shifted and made noisy. All shapes are
Fashion-MNIST's, and so is the throughput. Accuracy and time to accuracy are not comparable with Fashion-MNIST's.
"""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from trainers.data.digits import digits_file, read_digits

SIZES = {"train": 60_000, "t10k": 10_000}


def write(folder: Path) -> None:
    images, labels = read_digits(digits_file())
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in SIZES.items():
        chosen = random.integers(0, len(images), size)
        large = np.kron(images[chosen], np.ones((1, 3, 3), np.uint8))  # 24x24
        canvas = random.integers(0, 64, (size, 28, 28), dtype=np.uint8)
        for index, (row, column) in enumerate(random.integers(0, 5, (size, 2))):
            canvas[index, row : row + 24, column : column + 24] |= large[index]
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", canvas)
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", labels[chosen].astype(np.uint8))


def write_idx(path: Path, values: np.ndarray) -> None:
    """Write uint8 values as gzip-compressed IDX (yann.lecun.com/exdb/mnist, "the IDX file format")."""
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 0x08, values.ndim, *values.shape)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header + values.tobytes())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
