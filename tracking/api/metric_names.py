"""Renames a script's metrics and params to keys that MLflow allows, and reports the changes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TypeVar

from tracking.base import quantities
from tracking.record import journal

Value = TypeVar("Value")
MLFLOW_ALLOWS = "MLflow takes letters, digits, '_', '-', '.', ' ' and '/'"
PREFIX_CHARS = len(quantities.BEST)  # room for the longest prefix of a metric's name


class MetricNames:
    """Renames by `journal.as_key`. If two names become the same, the later one gets some digits of its hash."""

    def __init__(self, key_by_name: Mapping[str, str] | None = None) -> None:
        self._keys = dict(key_by_name or {})
        self._reported: set[str] = set()

    def key(self, name: str) -> str:
        if name not in self._keys:
            key = journal.as_key(name, PREFIX_CHARS)
            if key in self._keys.values():
                digits = f"_{hashlib.sha256(name.encode()).hexdigest()[:4]}"
                key = journal.as_key(name, PREFIX_CHARS + len(digits)) + digits
            self._keys[name] = key
        return self._keys[name]

    def with_keys(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The values by key instead of by name."""
        # Names that are valid keys go first, so that they stay unchanged in any order.
        order = sorted(values, key=lambda name: journal.as_key(name, PREFIX_CHARS) != name)
        keys = {name: self.key(name) for name in order}
        return {keys[name]: value for name, value in values.items()}

    def key_by_name(self) -> dict[str, str]:
        return dict(self._keys)

    def unreported(self) -> dict[str, str]:
        """Changed names with their keys, each reported once."""
        renamed = {name: key for name, key in self._keys.items() if name != key and name not in self._reported}
        self._reported |= renamed.keys()
        return renamed

    def tag(self) -> str:
        return "; ".join(f"{key} is {name}" for name, key in self._keys.items() if name != key)
