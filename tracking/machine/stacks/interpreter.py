"""Probes a stack's Python for its versions and packages before a training."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig, StackConfig
from tracking.base.secrets import redact
from tracking.machine.environment import Sources

OLDEST, NEWEST = (3, 10), (3, 14)
PROBE_SEC = 60.0
# Imports of every worker of ours.
NEEDED = ("torch", "pytorch-lightning", "numpy", "PyYAML")
PROBE = """
import glob, json, platform, re, sys
try:
    import importlib.metadata as metadata
except ImportError:  # before Python 3.8, which a program may have
    metadata = None
def version(name):
    try:
        return metadata.version(name)
    except Exception:
        return None
def cuda():
    try:
        text = metadata.distribution("torch").locate_file("torch/version.py").read_text()
    except Exception:
        return None
    match = re.search(r"^cuda[^=]*= '([\\d.]+)'", text, re.M)
    return match and match[1]
def torch_folder():
    try:
        return str(metadata.distribution("torch").locate_file("torch"))
    except Exception:
        return None
print(json.dumps({"python": platform.python_version(), "machine": platform.machine(), "cuda": cuda(),
    "torch_folder": torch_folder(), "tag": sys.implementation.cache_tag,
    "compat": bool(glob.glob("/usr/local/cuda*/compat/**/libcuda.so*", recursive=True)),
    "packages": {name: version(name) for name in sys.argv[1:]}}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python for a worker, with its versions; `cuda` is that of its torch.

    `compat`: the file system has a compatibility library for older drivers, as in images. `sources`: its torch's.
    """

    path: str
    python: str
    torch: str | None
    lightning: str | None
    cuda: str | None
    compat: bool = False
    sources: Sources | None = None

    @property
    def isolates(self) -> bool:
        """Whether it has the option -P, since 3.11."""
        return two_parts(self.python) >= (3, 11)

    @property
    def runs_us(self) -> bool:
        """Whether our code runs on it."""
        return OLDEST <= two_parts(self.python) <= NEWEST

    def __str__(self) -> str:
        lightning = f", Lightning {self.lightning}" if self.lightning else ""
        return f"Python {self.python}{lightning}"


def needed_by(config: RunConfig) -> tuple[str, ...]:
    """The packages that a run needs in its stack's Python; for a program, only those that start it."""
    if not config.is_program():
        return NEEDED
    return ("torch",) if config.program.launch == "torchrun" else ()


def made_of(stack: StackConfig) -> dict[str, Any]:
    """The options that decide which packages or image a stack has, by key."""
    keys = ("kind", "python", "torch", "requirements", "overrides", "index", "exclude_newer")
    container = {f"stack.container.{key}": getattr(stack.container, key) for key in ("engine", "image")}
    return {f"stack.{key}": getattr(stack, key) for key in keys} | container


def needs(configs: Iterable[RunConfig]) -> dict[str, tuple[str, ...]]:
    """The packages that these runs need in each stack's Python, by stack.

    Raises ConfigError if two stacks have one name: their runs would look alike in reports.
    """
    by_stack: dict[str, tuple[str, ...]] = {}
    made: dict[str, dict[str, Any]] = {}
    for config in configs:
        name, parts = config.stack.name, made_of(config.stack)
        if differing := [key for key in parts if parts[key] != made.setdefault(name, parts)[key]]:
            key = differing[0]
            raise ConfigError(
                f"{key}={parts[key]}: another job has {key}={made[name][key]}, and both have stack.name={name}. Next:"
                f" give each its own name, as in conf/stack, or run them as two sweeps"
            )
        by_stack[name] = max(by_stack.get(name, ()), needed_by(config), key=len)
    return by_stack


def probe(stack: StackConfig, path: str, needed: Sequence[str] = NEEDED) -> Interpreter:
    """The Python at `path`. Raises ConfigError if it is missing, does not answer, or lacks a needed package.

    The worker of a program does not run on it, so a program's Python may have any version.
    """
    key = f"stack={stack.name}: stack.python={path}"
    if not Path(path).is_file():
        raise ConfigError(f"{key}: no such file. Next: give the path of a Python, as venv/bin/python")
    answer = ask(key, path)
    if set(needed) == set(NEEDED):
        check_version(key, answer)
    return checked(key, path, answer, f"{path} -m pip install", needed)


def two_parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


def check_version(key: str, answer: dict[str, Any]) -> None:
    """Raise ConfigError for a Python on which a worker cannot run."""
    if not OLDEST <= two_parts(answer["python"]) <= NEWEST:
        allowed = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
        raise ConfigError(f"{key}: is Python {answer['python']}. Allowed: {allowed}. Next: give another Python")


def checked(key: str, path: str, answer: dict[str, Any], install: str, needed: Sequence[str]) -> Interpreter:
    """The Python of PROBE's answer. `install` begins the command that installs packages. Raises ConfigError."""
    packages: dict[str, str | None] = answer["packages"]
    if missing := [name for name in needed if packages[name] is None]:
        raise ConfigError(f"{key}: lacks {', '.join(missing)}. Next: {install} {' '.join(missing)}")
    torch, lightning = packages["torch"], packages["pytorch-lightning"]
    folder, tag = answer.get("torch_folder"), answer.get("tag")
    sources = Sources(Path(folder), tag) if folder and tag else None
    return Interpreter(path, answer["python"], torch, lightning, answer["cuda"], bool(answer.get("compat")), sources)


def ask(key: str, path: str) -> dict[str, Any]:
    """The answer of PROBE. Raises ConfigError without an answer."""
    try:
        process = subprocess.run(
            [path, "-c", PROBE, *NEEDED], capture_output=True, text=True, timeout=PROBE_SEC, stdin=subprocess.DEVNULL
        )
        answer = json.loads(process.stdout) if process.returncode == 0 else None
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfigError(
            f"{key}: does not answer as a Python does ({redact(str(error))[:200]}). Next: give the path of a Python"
        ) from None
    if not isinstance(answer, dict) or "python" not in answer:
        words = " ".join(process.stderr.split())[-200:]
        raise ConfigError(
            f"{key}: does not answer as a Python does (exit code {process.returncode}: {redact(words)}). Next: give the"
            " path of a Python"
        )
    return answer
