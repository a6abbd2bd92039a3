"""The declared stacks: files in conf/stack, and in the `stack` folder of a user's --config-dir."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conf import schema
from conf.schema import ConfigError, StackConfig
from tracking.request import stored_config

SHIPPED = Path(schema.__file__).parent


def declared(config_dirs: Sequence[Path] = ()) -> dict[str, StackConfig]:
    """Every stack by name; a user's stack replaces ours of the same name.

    Raises ConfigError for a malformed file and a missing folder.
    """
    if missing := [folder for folder in config_dirs if not folder.is_dir()]:
        raise ConfigError(f"--config-dir {missing[0]}: no such folder. Next: give one with a folder `stack`")
    stacks = {}
    for folder in (SHIPPED, *config_dirs):
        for path in sorted((folder / "stack").glob("*.yaml")):
            stacks[path.stem] = read(path)
    return stacks


@functools.cache
def text_loader() -> Any:
    """A safe loader that keeps numbers and dates as they are written: all options of a stack are texts."""
    import yaml

    class TextLoader(yaml.SafeLoader):
        def as_written(self, node: yaml.ScalarNode) -> str:
            return str(self.construct_scalar(node))

    for kind in ("int", "float", "timestamp", "bool"):
        TextLoader.add_constructor(f"tag:yaml.org,2002:{kind}", TextLoader.as_written)
    return TextLoader


def read(path: Path) -> StackConfig:
    import yaml  # Only here: a program's image may lack it.

    try:
        content = yaml.load(path.read_text(encoding="utf-8"), text_loader())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())[:200]}. Next: correct the file") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: declares nothing. Next: give name and kind, as in conf/stack/native.yaml")
    for key, kind in {"requirements": list, "overrides": list, "env": dict, "expect": dict}.items():
        if not isinstance(content.get(key, kind()), kind):
            example = "[A, B]" if kind is list else "{A: B}"
            raise ConfigError(f"{path}: {key}: {content[key]}: not a {kind.__name__}. Next: write it as {example}")
    stack = stored_config.from_dict(StackConfig, content, f"{path}: ")
    return (
        stack if stack.name != schema.REQUIRED else stored_config.from_dict(StackConfig, {**content, "name": path.stem})
    )
