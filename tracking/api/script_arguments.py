"""Arguments of a user's script: checks them, and renames metrics and params to keys that MLflow allows."""

from __future__ import annotations

import hashlib
import math
import operator
import os
from collections.abc import Mapping
from typing import Any, TypeVar

from conf.schema import ConfigError
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


def sample_count(value: Any, source: str) -> int:
    """A number of samples. Raises ConfigError that names `source` if it is not a whole number from 0 on."""
    try:
        number = int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor with several numbers
        number = -1
    if number < 0:
        raise ConfigError(f"{source}: {value!r} is not a number of samples. Allowed: a whole number, 0 or more")
    return number


def checked_params(params: Mapping[str, Any]) -> dict[str, journal.Scalar]:
    """The params as values that MLflow shows. A tensor of one number becomes this number. Raises ConfigError."""
    if not isinstance(params, Mapping):
        raise ConfigError(f"params={params!r}: not params. Allowed: a dict such as {{'lr': 0.1}}")
    values: dict[str, journal.Scalar] = {}
    for key, value in params.items():
        if not isinstance(key, str) or not key:
            raise ConfigError(f"params={key!r}: not a param's name. Allowed: a text such as 'lr'")
        plain = value
        if hasattr(value, "item") and math.prod(getattr(value, "shape", (0,))) == 1:
            plain = value.item()
        elif isinstance(value, os.PathLike | list | tuple | dict):
            plain = str(value)
        if plain is not None and not isinstance(plain, str | int | float | bool):
            raise ConfigError(
                f"params={{{key!r}: ...}}: has the type {type(value).__name__}. Allowed: one number, a text, True,"
                " False or None. Next: give a number or a text, such as str(value)"
            )
        values[key] = plain
    return values


def check_whole(key: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{key}={value!r}: must be a whole number, 1 or more")


def check_not_below_0(key: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ConfigError(f"{key}={value!r}: must be a number, 0 or more")


def check_flag(key: str, value: Any) -> None:
    """Raise ConfigError that names the argument unless it is True or False: any text would count as True."""
    if not isinstance(value, bool):
        raise ConfigError(f"{key}={value!r}: must be True or False. Next: give {key}=True or {key}=False")
