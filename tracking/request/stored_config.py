"""Writes and reads a run's config as YAML, and reads any YAML of a run folder, which is untrusted."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any

from conf.schema import ConfigError, RunConfig

MAX_CHARS = 1_000_000  # a run's config has some thousands
MAX_DEPTH = 32  # levels of nesting; a run's config has six


@functools.cache
def _loaders() -> tuple[Any, Any]:
    """PyYAML's safe loader, and a subclass that loads integers of more than 63 bits as floats."""
    import yaml  # Imported in functions only: a program's image may lack PyYAML.

    loader_class = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, if PyYAML was built with it

    class BoundedLoader(loader_class):  # type: ignore[valid-type, misc]
        def construct_integer(self, node: yaml.ScalarNode) -> int | float:
            value = self.construct_yaml_int(node)
            return value if -(2**63) <= value < 2**63 else float(str(value))

    BoundedLoader.add_constructor("tag:yaml.org,2002:int", BoundedLoader.construct_integer)
    return loader_class, BoundedLoader


def loaded(text: str) -> Any:
    """The content of a YAML file of a run. Raises ValueError if it is malformed, too large, too deep or has aliases.

    Aliases are refused because nested ones expand some hundred bytes to billions of values.
    """
    import yaml

    if len(text) > MAX_CHARS:
        raise ValueError(f"has {len(text)} characters. Allowed in a run's YAML: {MAX_CHARS}")
    loader, integer_loader = _loaders()
    try:
        depth = 0
        for event in yaml.parse(text, loader):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"has an alias (*{event.anchor}), which is not allowed in a run's YAML")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise ValueError(f"is nested too deep. Allowed in a run's YAML: {MAX_DEPTH} levels")
        return yaml.load(text, integer_loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"is not YAML ({' '.join(str(error).split())[:200]})") from None


def to_text(config: RunConfig) -> str:
    import yaml

    return yaml.safe_dump(dataclasses.asdict(config), sort_keys=False)


def parse(text: str, source: str) -> RunConfig:
    """The config from a text of `to_text`; `source` names the text in errors.

    Raises ConfigError for malformed texts, and for unknown keys, as in a config of another version.
    """
    try:
        content = loaded(text)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}. Next: put a copy in place") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{source}: has no options. Next: put a copy in place")
    return from_dict(RunConfig, content)


T = typing.TypeVar("T")


def from_dict(cls: type[T], data: dict[str, Any], prefix: str = "") -> T:
    """Rebuild nested dataclasses from plain dicts. Raises ConfigError."""
    hints = typing.get_type_hints(cls)
    if not isinstance(data, dict):
        raise ConfigError(f"{prefix.rstrip('.')}={data}: not a mapping. Allowed keys: {', '.join(sorted(hints))}")
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise ConfigError(f"{prefix}{unknown[0]}: no such option. Allowed: {', '.join(sorted(hints))}")
    values = {
        key: from_dict(hints[key], value, f"{prefix}{key}.") if dataclasses.is_dataclass(hints[key]) else value
        for key, value in data.items()
    }
    return cls(**values)


def type_name(hint: Any) -> str:
    """A type as text for the reference and for messages: `int | null` rather than Optional[int]."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return " | ".join(type_name(part) for part in typing.get_args(hint))
    if hint is type(None):
        return "null"
    if hint is Any:
        return "any"
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")
