"""The versions that a worker must find by its stack's declaration, and the check that it did."""

from __future__ import annotations

import re
from typing import Any

from conf.schema import ConfigError, StackConfig
from tracking.machine.environment import fingerprint

# Wheels of libraries that report their own version.
LIBRARIES = {"cudnn": r"nvidia-cudnn-cu\d+", "nccl": r"nvidia-nccl-cu\d+"}
DIGITS = 3  # cuDNN and NCCL report three parts of their version; a wheel's fourth counts builds


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
