"""MovieLens' own files of ratings: 20M, 25M and 32M (ratings.csv), 1M and 10M (ratings.dat), 100K (u.data).

Source: F. M. Harper and J. A. Konstan 2015, https://grouplens.org/datasets/movielens. As in MLPerf Training v0.5, any
rating counts as interest, users of fewer than 20 ratings are left out, and each user's last rating is held out.
"""

from __future__ import annotations

import re
import warnings
from codecs import BOM_UTF8
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conf.schema import ConfigError
from trainers.data.cached import Arrays, cached_arrays
from trainers.data.ratings.interactions import Interactions, leave_last_out
from trainers.data.reading.folder_index import resolved

MIN_RATINGS = 20  # a user's, at least
MAX_ID = 2**31 - 1
NEXT_STEP = "put the dataset's original file there"
NUM_FIELDS = 4
WHOLE = re.compile(rb"\s*[+-]?[0-9]+\s*")
FORMAT = 2  # The format of the arrays that are kept. Raise it when what is read or refused changes


@dataclass(frozen=True)
class Layout:
    """How a file's lines are written: user, item, rating and time, between separators."""

    separator: str
    header: str | None = None


LAYOUTS = {
    "ratings.csv": Layout(",", "userId,movieId,rating,timestamp"),
    "ratings.dat": Layout("::"),
    "u.data": Layout("\t"),
}


def load(path: str) -> Interactions:
    """The ratings in the folder `path`, which are read once and then kept in the cache.

    Raises ConfigError where there is no such file, and for the first line that is none of MovieLens'.
    """
    file = locate(path)
    return Interactions(**cached_arrays("movielens", [file], "", FORMAT, lambda: read(file)))


def locate(path: str) -> Path:
    """The file of ratings in a folder. Raises ConfigError where there is none, or more than one."""
    root = resolved(path)
    files = [root / name for name in LAYOUTS if (root / name).is_file()]
    if len(files) == 1:
        return files[0]
    there = " and ".join(file.name for file in files) or "none of them"
    raise ConfigError(
        f"dataset.path={path}: {root} holds {there}; set dataset.path to the unpacked folder of one MovieLens, which"
        f" holds {', '.join(LAYOUTS)}, one of the three"
    )


def read(file: Path) -> Arrays:
    """The arrays of `Interactions`. Raises ConfigError, with the line, for what is not MovieLens'."""
    users, items, times = read_columns(file).T
    refuse_out_of_range(file, users, items)
    users, items, times = of_active_users(file, users, items, times)
    _, users = np.unique(users, return_inverse=True)
    known, items = np.unique(items, return_inverse=True)
    return leave_last_out(users, items, times, len(known))


def read_columns(file: Path) -> np.ndarray:
    """User, item and time of each line, int64 [N, 3]. Empty lines are passed over."""
    layout = LAYOUTS[file.name]
    width = len(layout.separator)  # "::" is read as ":" with nothing between the two
    try:
        with file.open(encoding="latin-1") as lines, warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy warns of an empty file, and of numbers that are not whole.
            if lines.read(len(BOM_UTF8)).encode("latin-1") != BOM_UTF8:
                lines.seek(0)
            if layout.header is not None and lines.readline().strip() != layout.header:
                raise ConfigError(f"{file}:1: the header must be {layout.header}; {NEXT_STEP}")
            columns = np.loadtxt(
                lines, np.int64, comments=None, delimiter=layout.separator[0], usecols=(0, width, 3 * width), ndmin=2
            )
        num_lines = len(columns) + (layout.header is not None)
        num_separators = file.read_bytes().count(layout.separator.encode())
        if num_separators != num_lines * (NUM_FIELDS - 1):  # NumPy takes lines of more fields, too.
            raise ValueError("a line has another number of fields")
        return columns
    except (ValueError, DeprecationWarning, UserWarning) as error:
        if isinstance(error, ConfigError):
            raise
        line = wrong_line(file) or f"{file}: {error}"
        raise ConfigError(f"{line}; {NEXT_STEP}") from error


def wrong_line(file: Path) -> str | None:
    """The first line that is not four fields with whole numbers for user, item and time; None where all are."""
    separator = LAYOUTS[file.name].separator
    num_read = 0
    for number, text in numbered_lines(file):
        num_read += 1
        if not is_rating(text, separator.encode()):
            shown = text.decode("utf-8", "backslashreplace")[:60]
            wanted = separator.join(("user", "item", "rating", "time"))
            return f"{file}:{number}: {shown!r} is not {wanted!r} with whole numbers for user, item and time"
    return None if num_read else f"{file}: holds no rating"


def is_rating(text: bytes, separator: bytes) -> bool:
    fields = text.split(separator)
    if len(fields) != NUM_FIELDS or any(separator[:1] in field for field in fields):
        return False
    return all(WHOLE.fullmatch(field) and abs(int(field)) < 2**63 for field in (fields[0], fields[1], fields[3]))


def numbered_lines(file: Path) -> list[tuple[int, bytes]]:
    """The lines that hold something, if only spaces, without the header, by their numbers from 1."""
    first = 1 if LAYOUTS[file.name].header is None else 2
    lines = file.read_bytes().removeprefix(BOM_UTF8).splitlines()[first - 1 :]
    return [(number, line) for number, line in enumerate(lines, first) if line]


def line_of(file: Path, row: int) -> int:
    """The number of the line that a row of `read_columns` was read from."""
    return numbered_lines(file)[row][0]


def refuse_out_of_range(file: Path, users: np.ndarray, items: np.ndarray) -> None:
    """Raise ConfigError for an id that is none, and for a rating that is there twice."""
    for what, ids in (("user", users), ("item", items)):
        if len(wrong := np.flatnonzero((ids < 0) | (ids > MAX_ID))):
            line = line_of(file, wrong[0])
            raise ConfigError(f"{file}:{line}: {what} {ids[wrong[0]]} is out of range; ids are from 0 to {MAX_ID}")
    key = (users << 31) + items
    order = np.argsort(key, kind="stable")
    again = np.flatnonzero(np.diff(key[order]) == 0)
    if len(again):
        row = order[again + 1].min()
        first = int(np.flatnonzero(key == key[row])[0])
        raise ConfigError(
            f"{file}:{line_of(file, row)}: user {users[row]} rates item {items[row]} again, after line"
            f" {line_of(file, first)}; keep one of the two"
        )


def of_active_users(
    file: Path, users: np.ndarray, items: np.ndarray, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ratings of users with 20 or more. Raises ConfigError where there is none, and nothing to test on."""
    _, user, counts = np.unique(users, return_inverse=True, return_counts=True)
    kept = counts[user] >= MIN_RATINGS
    if not kept.any():
        raise ConfigError(
            f"{file}: no user has {MIN_RATINGS} ratings or more ({counts.max()} at most), so that nothing is left to"
            f" train and to test on; {NEXT_STEP}"
        )
    return users[kept], items[kept], times[kept]
