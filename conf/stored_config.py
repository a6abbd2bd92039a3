"""A run's options as text, and read back from it."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from conf.schema import ConfigError, RunConfig


def to_text(config: RunConfig) -> str:
    import yaml  # In these functions only: a program's image need not have it.

    return yaml.safe_dump(dataclasses.asdict(config), sort_keys=False)


def parse(text: str, source: str) -> RunConfig:
    """The config in a text that `to_text` made; `source` names it in errors.

    Raises ConfigError for unknown keys, as a config of another version has, and for what is no config.
    """
    import yaml

    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: is no YAML ({' '.join(str(error).split())[:200]}); put a copy in place") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{source}: holds no options; put a copy in place")
    return from_dict(RunConfig, content)


T = typing.TypeVar("T")


def from_dict(cls: type[T], data: dict[str, Any], prefix: str = "") -> T:
    """Rebuild nested dataclasses from plain dicts. Raises ConfigError."""
    hints = typing.get_type_hints(cls)
    if not isinstance(data, dict):
        raise ConfigError(f"{prefix.rstrip('.')}={data}: must have the keys {', '.join(sorted(hints))}")
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise ConfigError(f"{prefix}{unknown[0]}: no such option; allowed here: {', '.join(sorted(hints))}")
    values = {
        key: from_dict(hints[key], value, f"{prefix}{key}.") if dataclasses.is_dataclass(hints[key]) else value
        for key, value in data.items()
    }
    return cls(**values)


def type_name(hint: Any) -> str:
    """A type as the reference and the error messages print it: `int | null` rather than Optional[int]."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return " | ".join(type_name(part) for part in typing.get_args(hint))
    if hint is type(None):
        return "null"
    if hint is Any:
        return "any"
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")
