"""The declared stacks, from conf/stack and the `stack` folder of a user's --config-dir; and what each promises."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conf import schema
from conf.schema import ConfigError, StackConfig
from tracking.machine.environment import fingerprint
from tracking.request import stored_config

SHIPPED = Path(schema.__file__).parent
# Wheels of libraries that report their own version.
LIBRARIES = {"cudnn": r"nvidia-cudnn-cu\d+", "nccl": r"nvidia-nccl-cu\d+"}
DIGITS = 3  # cuDNN and NCCL report three parts of their version; a wheel's fourth counts builds


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


def expected(stack: StackConfig) -> dict[str, str]:
    """The expected versions by fingerprint key, from the declaration, overridden by `stack.expect`."""
    versions = {"torch": stack.torch} if stack.torch else {}
    if stack.kind == "uv" and stack.python and re.fullmatch(r"[\d.]+", stack.python):
        versions["python"] = stack.python
    for line in [*stack.requirements, *stack.overrides]:
        for key, name in LIBRARIES.items():
            if match := re.fullmatch(rf"{name}\s*==\s*([\d.]+)", line.strip()):
                versions[key] = ".".join(match[1].split(".")[:DIGITS])
    return versions | stack.expect


def check_promise(stack: StackConfig, facts: dict[str, Any]) -> None:
    """Raise ConfigError if the fingerprint differs from the expected versions."""
    if mismatches := fingerprint.mismatches(facts, expected(stack)):
        raise ConfigError(
            f"stack={stack.name}: {'; '.join(mismatches)}. Next: give a stack that has it, or correct stack.expect"
        )
