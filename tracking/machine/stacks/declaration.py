"""The declared stacks: files in conf/stack, and in the `stack` folder of a user's --config-dir."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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


def read(path: Path) -> StackConfig:
    import yaml  # Only here: a program's image may lack it.

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())[:200]}. Next: correct the file") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: declares nothing. Next: give name and kind, as in conf/stack/native.yaml")
    stack = stored_config.from_dict(StackConfig, content, f"{path}: ")
    return (
        stack if stack.name != schema.REQUIRED else stored_config.from_dict(StackConfig, {**content, "name": path.stem})
    )
