"""Handwritten digits, 8x8 pixels: the 1,797 samples of UCI's optical recognition data that scikit-learn includes.

Source: E. Alpaydin and C. Kaynak, 1998, https://doi.org/10.24432/C50P49 (its test set). The data train on a CPU in
under a minute and need no download.
"""

from __future__ import annotations

import importlib.util
import zlib
from pathlib import Path

import numpy as np

from conf.schema import ConfigError
from tracking.base import old_paths
from trainers.data.images import Arrays, ImageData, Source, split
from trainers.data.reading.packed_file import is_content

NUM_SAMPLES = 1797
NUM_BYTES, FIRST = 264_712, b"0,0,5,13,9,1,0,0,"  # of scikit-learn's file, unpacked
NUM_TEST = 359  # a fixed fifth
NUM_EVAL = 288  # a fifth of the rest


def digits() -> ImageData:
    """Return the dataset; its file is read at the first batch.

    Raises ConfigError if scikit-learn's file is missing, or is torn or another by its first and last bytes.
    """
    path = digits_file()
    if not is_content(path, FIRST, NUM_BYTES):
        read_digits(path)  # It says what is wrong; another version of scikit-learn may have written the same numbers.

    def read(source: Source) -> Arrays:
        images, labels = read_digits(path)
        kept, test = split(NUM_SAMPLES, NUM_TEST)
        index = test if source == "test" else kept
        return images[index], labels[index]

    return ImageData(
        name="digits",
        num_classes=10,
        image_size=(8, 8),
        class_names=tuple("0123456789"),
        num_train=NUM_SAMPLES - NUM_TEST - NUM_EVAL,
        num_eval=NUM_EVAL,
        num_test=NUM_TEST,
        read=read,
    )


def digits_file() -> Path:
    """Return the path of scikit-learn's file, without importing scikit-learn, which takes seconds."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "dataset=digits: its file is part of scikit-learn, which is missing. Next: install scikit-learn"
        )
    path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if not path.is_file():
        raise ConfigError(f"dataset=digits: {path} is missing. Next: reinstall scikit-learn")
    return path


def read_digits(path: Path) -> Arrays:
    """Return images uint8 [1797, 8, 8] and labels int64 [1797].

    The file counts 0 to 16 dark pixels in a 4x4 block; the counts are scaled to the range of a byte.
    """
    try:
        table = np.loadtxt(path, delimiter=",")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ConfigError(f"dataset=digits: {path} cannot be read ({error}). Next: reinstall scikit-learn") from error
    if table.shape != (NUM_SAMPLES, 65):
        raise ConfigError(
            f"dataset=digits: {path} holds a table {list(table.shape)}, expected [{NUM_SAMPLES}, 65]."
            " Next: reinstall scikit-learn"
        )
    images = np.rint(table[:, :64] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)
    return images, table[:, 64].astype(np.int64)


old_paths.watch(__name__)
