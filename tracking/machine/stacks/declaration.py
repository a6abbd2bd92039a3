"""The stacks that are declared: files of conf/stack, and of the `stack` folder of a user's --config-dir."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conf import schema
from conf.schema import ConfigError, StackConfig
from tracking.request import stored_config

SHIPPED = Path(schema.__file__).parent


def declared(config_dirs: Sequence[Path] = ()) -> dict[str, StackConfig]:
    """Every stack by its name; of two of one name the user's. Raises ConfigError for a file that declares none, and
    for a folder that is not there."""
    if missing := [folder for folder in config_dirs if not folder.is_dir()]:
        raise ConfigError(f"--config-dir {missing[0]}: no such folder; give one with a folder `stack`")
    stacks = {}
    for folder in (SHIPPED, *config_dirs):
        for path in sorted((folder / "stack").glob("*.yaml")):
            stacks[path.stem] = read(path)
    return stacks


def read(path: Path) -> StackConfig:
    import yaml  # Only here: a program's image need not have it.

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())[:200]}; correct the file") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: declares nothing; give its name and kind, as conf/stack/native.yaml does")
    stack = stored_config.from_dict(StackConfig, content, f"{path}: ")
    return (
        stack if stack.name != schema.REQUIRED else stored_config.from_dict(StackConfig, {**content, "name": path.stem})
    )
