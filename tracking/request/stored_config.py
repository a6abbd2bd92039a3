"""A run's options as text, and read back from it; and every YAML of a run's folder, which anybody may have written."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any

from conf.schema import ConfigError, RunConfig

MAX_CHARS = 1_000_000  # of a text; a run's config has some thousands
MAX_DEPTH = 32  # of what lies in each other; a run's config has six


@functools.cache
def _loaders() -> tuple[Any, Any]:
    """PyYAML's loader, and one whose whole numbers of more than 63 bits are floats, as no others fit into a float."""
    import yaml  # In these functions only: a program's image need not have it.

    fast = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML was built with it

    class Bounded(fast):  # type: ignore[valid-type, misc]
        def whole(self, node: yaml.ScalarNode) -> int | float:
            value = self.construct_yaml_int(node)
            return value if -(2**63) <= value < 2**63 else float(str(value))

    Bounded.add_constructor("tag:yaml.org,2002:int", Bounded.whole)
    return fast, Bounded


def loaded(text: str) -> Any:
    """What a YAML of a run says. Raises ValueError for what is none, and for what no run of ours has written.

    An alias may stand for a part that holds aliases in its turn: some hundred bytes become billions of values.
    """
    import yaml

    if len(text) > MAX_CHARS:
        raise ValueError(f"has {len(text)} characters, and a run's YAML has no more than {MAX_CHARS}")
    loader, bounded = _loaders()
    try:
        depth = 0
        for event in yaml.parse(text, loader):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"has an alias (*{event.anchor}), which no YAML of a run has")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise ValueError(f"is deeper than {MAX_DEPTH} levels, which no YAML of a run is")
        return yaml.load(text, bounded)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"is no YAML ({' '.join(str(error).split())[:200]})") from None


def to_text(config: RunConfig) -> str:
    import yaml

    return yaml.safe_dump(dataclasses.asdict(config), sort_keys=False)


def parse(text: str, source: str) -> RunConfig:
    """The config in a text that `to_text` made; `source` names it in errors.

    Raises ConfigError for unknown keys, as a config of another version has, and for what is no config.
    """
    try:
        content = loaded(text)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}; put a copy in place") from None
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
