"""Reads MovieLens' files of ratings: 20M, 25M and 32M (ratings.csv), 1M and 10M (ratings.dat), 100K (u.data).

Source: F. M. Harper and J. A. Konstan 2015, https://grouplens.org/datasets/movielens. As in MLPerf Training v0.5, any
rating counts as interest, users with fewer than 20 ratings are left out, and each user's last rating is held out.
"""

from __future__ import annotations

import re
import warnings
from codecs import BOM_UTF8
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

import numpy as np

from conf.schema import ConfigError
from trainers.data.cached import Arrays, cached_arrays
from trainers.data.ratings.interactions import Interactions, leave_last_out
from trainers.data.reading.folder_index import resolved
from trainers.data.reading.regular_file import opened, read_bytes

MIN_RATINGS = 20  # least ratings of a user
MAX_ID = 2**31 - 1
NEXT_STEP = "put the dataset's original file there"
NUM_FIELDS = 4
WHOLE = re.compile(rb"\s*[+-]?[0-9]+\s*")
FORMAT = 2  # version of the cached arrays; raise it when something else is read or refused


@dataclass(frozen=True)
class Layout:
    """The format of a file's lines: user, item, rating and time, with separators."""

    separator: str
    header: str | None = None


LAYOUTS = {
    "ratings.csv": Layout(",", "userId,movieId,rating,timestamp"),
    "ratings.dat": Layout("::"),
    "u.data": Layout("\t"),
}


def load(path: str) -> Interactions:
    """Return the ratings in folder `path`, which are read once and then cached.

    Raises ConfigError for a missing file, and for the first line that is not in MovieLens' format.
    """
    file = locate(path)
    return Interactions(**cached_arrays("movielens", [file], "", FORMAT, lambda: read(file)))


def locate(path: str) -> Path:
    """Return the file of ratings in a folder. Raises ConfigError for no such file, or several."""
    root = resolved(path)
    files = [root / name for name in LAYOUTS if (root / name).is_file()]
    if len(files) == 1:
        return files[0]
    problem = f"has {' and '.join(file.name for file in files)}" if files else "has no file of ratings"
    raise ConfigError(
        f"dataset.path={path}: {root} {problem}. Next: set dataset.path to the unpacked folder of one MovieLens, with"
        f" one of {', '.join(LAYOUTS)}"
    )


def read(file: Path) -> Arrays:
    """Return the arrays of `Interactions`. Raises ConfigError, naming the line, for another format."""
    users, items, times = read_columns(file).T
    refuse_out_of_range(file, users, items)
    users, items, times = of_active_users(file, users, items, times)
    _, users = np.unique(users, return_inverse=True)
    known, items = np.unique(items, return_inverse=True)
    return leave_last_out(users, items, times, len(known))


def read_columns(file: Path) -> np.ndarray:
    """Return user, item and time of each line, int64 [N, 3]. Empty lines are skipped."""
    layout = LAYOUTS[file.name]
    width = len(layout.separator)  # "::" is read as two ":" with an empty field between them.
    try:
        with TextIOWrapper(opened(file), encoding="latin-1") as lines, warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy only warns of an empty file, and of numbers that are not whole.
            if lines.read(len(BOM_UTF8)).encode("latin-1") != BOM_UTF8:
                lines.seek(0)
            if layout.header is not None and lines.readline().strip() != layout.header:
                raise ConfigError(f"{file}:1: the header must be {layout.header}. Next: {NEXT_STEP}")
            columns = np.loadtxt(
                lines, np.int64, comments=None, delimiter=layout.separator[0], usecols=(0, width, 3 * width), ndmin=2
            )
        num_lines = len(columns) + (layout.header is not None)
        num_separators = read_bytes(file).count(layout.separator.encode())
        if num_separators != num_lines * (NUM_FIELDS - 1):  # NumPy also accepts lines with more fields.
            raise ValueError("a line has another number of fields")
        return columns
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror}). Next: {NEXT_STEP}") from error
    except (ValueError, DeprecationWarning, UserWarning) as error:
        if isinstance(error, ConfigError):
            raise
        line = wrong_line(file) or f"{file}: {error}"
        raise ConfigError(f"{line}. Next: {NEXT_STEP}") from error


def wrong_line(file: Path) -> str | None:
    """Return a message for the first line without four fields or whole numbers; None if all lines are right."""
    separator = LAYOUTS[file.name].separator
    num_read = 0
    for number, text in numbered_lines(file):
        num_read += 1
        if not is_rating(text, separator.encode()):
            shown = text.decode("utf-8", "backslashreplace")[:60]
            columns = separator.join(("user", "item", "rating", "time"))
            return f"{file}:{number}: {shown!r} is not {columns!r} with whole numbers for user, item and time"
    return None if num_read else f"{file}: has no rating"


def is_rating(text: bytes, separator: bytes) -> bool:
    fields = text.split(separator)
    if len(fields) != NUM_FIELDS or any(separator[:1] in field for field in fields):
        return False
    return all(WHOLE.fullmatch(field) and abs(int(field)) < 2**63 for field in (fields[0], fields[1], fields[3]))


def numbered_lines(file: Path) -> list[tuple[int, bytes]]:
    """Return the lines that are not empty, without the header, with their numbers from 1."""
    first = 1 if LAYOUTS[file.name].header is None else 2
    lines = read_bytes(file).removeprefix(BOM_UTF8).splitlines()[first - 1 :]
    return [(number, line) for number, line in enumerate(lines, first) if line]


def line_of(file: Path, row: int) -> int:
    """Return the number of the line of a row of `read_columns`."""
    return numbered_lines(file)[row][0]


def refuse_out_of_range(file: Path, users: np.ndarray, items: np.ndarray) -> None:
    """Raise ConfigError for an id out of range, and for a repeated rating."""
    for column, ids in (("user", users), ("item", items)):
        if len(wrong := np.flatnonzero((ids < 0) | (ids > MAX_ID))):
            line = line_of(file, wrong[0])
            raise ConfigError(f"{file}:{line}: {column} {ids[wrong[0]]} is out of range; ids must be 0 to {MAX_ID}")
    key = (users << 31) + items
    order = np.argsort(key, kind="stable")
    again = np.flatnonzero(np.diff(key[order]) == 0)
    if len(again):
        row = order[again + 1].min()
        first = int(np.flatnonzero(key == key[row])[0])
        raise ConfigError(
            f"{file}:{line_of(file, row)}: user {users[row]} rates item {items[row]} again, after line"
            f" {line_of(file, first)}. Next: remove one of the two lines"
        )


def of_active_users(
    file: Path, users: np.ndarray, items: np.ndarray, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ratings of users with 20 or more. Raises ConfigError if there are no such users."""
    _, user, counts = np.unique(users, return_inverse=True, return_counts=True)
    kept = counts[user] >= MIN_RATINGS
    if not kept.any():
        raise ConfigError(
            f"{file}: no user has {MIN_RATINGS} ratings or more (the most are {counts.max()}), so nothing is left to"
            f" train and test on. Next: {NEXT_STEP}"
        )
    return users[kept], items[kept], times[kept]
