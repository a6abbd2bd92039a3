"""What a worker must find, from what its stack declares, and whether it did."""

from __future__ import annotations

import re
from typing import Any

from conf.schema import ConfigError, StackConfig
from tracking.machine.environment import fingerprint

# The wheels of the libraries whose version a worker asks of the library itself.
LIBRARIES = {"cudnn": r"nvidia-cudnn-cu\d+", "nccl": r"nvidia-nccl-cu\d+"}
DIGITS = 3  # cuDNN and NCCL tell three parts of their version; a wheel's fourth counts its builds


def expected(stack: StackConfig) -> dict[str, str]:
    """Versions by fingerprint key: those declared, under what `stack.expect` says itself."""
    versions = {"torch": stack.torch} if stack.torch else {}
    if stack.kind == "uv" and stack.python and re.fullmatch(r"[\d.]+", stack.python):
        versions["python"] = stack.python
    for line in [*stack.requirements, *stack.overrides]:
        for key, name in LIBRARIES.items():
            if match := re.fullmatch(rf"{name}\s*==\s*([\d.]+)", line.strip()):
                versions[key] = ".".join(match[1].split(".")[:DIGITS])
    return versions | stack.expect


def check_promise(stack: StackConfig, facts: dict[str, Any]) -> None:
    """Raises ConfigError where the fingerprint's facts are not what the stack promises."""
    if mismatches := fingerprint.mismatches(facts, expected(stack)):
        raise ConfigError(
            f"stack={stack.name}: {'; '.join(mismatches)}. Use a stack that has it, or correct stack.expect"
        )
