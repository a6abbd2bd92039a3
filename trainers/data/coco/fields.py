"""Reads the fields of an annotation file; errors name the file, the item, its id and the field."""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from conf.schema import ConfigError
from trainers.data.reading.regular_file import read_bytes

NEXT_STEP = "put the dataset's original file in place, or one in COCO's format for instances"


def refuse(path: Path, reason: str) -> NoReturn:
    raise ConfigError(f"dataset.path: {path}: {reason}. Next: {NEXT_STEP}")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file. Raises ConfigError if it cannot be read."""
    collecting = gc.isenabled()
    gc.disable()  # It would scan millions of new lists and dicts again and again without freeing any.
    try:
        return json.loads(read_bytes(path))
    except (OSError, ValueError, RecursionError) as error:  # Decoding errors are ValueErrors.
        refuse(path, f"cannot be read as JSON ({error})")
    finally:
        if collecting:
            gc.enable()


def is_number(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value <= high  # False for NaN


@dataclass(frozen=True)
class Items:
    """A part of an annotation file: n objects with keys. All methods raise ConfigError for invalid content."""

    path: Path
    part: str  # images | annotations | categories
    items: list[dict[str, Any]]

    @classmethod
    def of(cls, path: Path, content: Any, part: str) -> Items:
        if not isinstance(content, dict) or part not in content:
            refuse(path, f"lacks the list `{part}`")
        items = content[part]
        if not isinstance(items, list) or not items:
            refuse(path, f"`{part}` is {'empty' if isinstance(items, list) else 'not a list'}")
        for position, item in enumerate(items):
            if type(item) is not dict:
                refuse(path, f"{part}[{position}] is a {type(item).__name__}, not an object with keys")
        return cls(path, part, items)

    def refuse(self, position: int, reason: str) -> NoReturn:
        item = self.items[position]
        known = f" (id {item['id']!r})" if "id" in item else ""
        refuse(self.path, f"{self.part}[{position}]{known} {reason}")

    def values(self, key: str) -> list[Any]:
        try:
            return [item[key] for item in self.items]
        except KeyError:
            self.refuse(next(at for at, item in enumerate(self.items) if key not in item), f"lacks `{key}`")

    def strings(self, key: str) -> list[str]:
        values = self.values(key)
        for position, value in enumerate(values):
            if not isinstance(value, str) or not value:
                self.refuse(position, f"has the {key} {value!r}, expected a string")
        return values

    def integers(self, key: str) -> np.ndarray:
        """Return the items' values of a key, int64 [n]."""
        values = self.values(key)
        for position, value in enumerate(values):
            if type(value) is not int or abs(value) >= 2**53:
                self.refuse(position, f"has the {key} {value!r}, expected a whole number")
        return np.array(values, np.int64)

    def ids(self) -> np.ndarray:
        """Return the items' ids, int64 [n]; they must be unique."""
        ids = self.integers("id")
        unique, counts = np.unique(ids, return_counts=True)
        if len(unique) < len(ids):
            refuse(self.path, f"`{self.part}` has the id {unique[np.argmax(counts > 1)]} more than once")
        return ids

    def positions(self, key: str, part: str, known: np.ndarray) -> np.ndarray:
        """Return the position of each item's id among the sorted ids of another part: int64 [n]."""
        ids = self.integers(key)
        positions = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        unknown = known[positions] != ids
        if unknown.any():
            first = int(np.argmax(unknown))
            self.refuse(first, f"has the {key} {ids[first]}, which is not in `{part}`")
        return positions
