"""Finds the Python that a program runs on, from its command, and takes that Python's fingerprint."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.base import installation
from tracking.jobs.program import process
from tracking.jobs.worker_command import run_module
from tracking.machine.stacks import Interpreter, probe

STACK_FINGERPRINT = installation.module("tracking.jobs.program.stack_fingerprint")
# Keys of a fingerprint that describe its Python rather than the machine.
PYTHON_KEYS = (
    "python", "packages", "torch", "cuda", "cudnn", "nccl", "libraries", "loaded", "jax", "tensorflow", "framework",
)  # fmt: skip


def of(config: RunConfig, run_dir: Path, environ: Mapping[str, str], stack_python: str | None) -> str | None:
    """The path of the program's Python; `stack_python` is the stack's, if it is not ours.

    A command without a Python (`bash -c`) is taken to run on the stack's. None if it is not known.
    """
    word = process.words(config, run_dir)[0]
    inside = config.stack.kind == "container"  # There this process runs on the stack's Python.
    if config.program.launch == "torchrun" and is_python(word):
        return stack_python or sys.executable
    return named(process.executable(word, environ, config.program.cwd), environ) or (
        stack_python or (sys.executable if inside else None)
    )


def is_python(word: str) -> bool:
    return re.fullmatch(r"python[\d.]*", Path(word).name) is not None


def named(path: str | None, environ: Mapping[str, str]) -> str | None:
    """The Python that `path` is, or that its first line names; None for other programs."""
    if path is None or is_python(path):
        return path
    with suppress(OSError), Path(path).open("rb") as file:
        line = file.readline(1000).decode(errors="replace")
        words = line[2:].split() if line.startswith("#!") else []
        if words and Path(words[0]).name == "env":
            words = [word for word in words[1:] if word != "-S"]
        if words and is_python(words[0]):
            return process.executable(words[0], environ, None)
    return None


def fingerprint(config: RunConfig, python: str | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """The fingerprint of the machine and of the Python at this path; only the machine's if the path is not known."""
    interpreter: Interpreter | None = None
    with suppress(ConfigError):  # An executable that does not answer as Python is ignored.
        interpreter = probe(config.stack, python, needed=()) if python else None
    if interpreter is not None and interpreter.runs_us:
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            return taken_on(interpreter, config, environ, "torch")
    ours = Interpreter(sys.executable, ".".join(map(str, sys.version_info[:3])), None, None, None)
    facts = taken_on(ours, config, os.environ, "")  # Its software is dropped, so its PyTorch need not be imported.
    software = {key: value for key, value in facts["software"].items() if key not in PYTHON_KEYS}
    if interpreter is not None:
        answer = {"python": interpreter.python, "torch": interpreter.torch, "cuda": interpreter.cuda}
        software |= {key: value for key, value in answer.items() if value}
    return facts | {"software": software}


def taken_on(python: Interpreter, config: RunConfig, environ: Mapping[str, str], imports: str) -> dict[str, Any]:
    """The fingerprint, taken by a process on this Python. `imports`: "torch" adds PyTorch's versions, "" nothing.

    Raises ValueError and OSError if it cannot be taken.
    """
    folders = os.pathsep.join(filter(None, [str(installation.SEARCH_FOLDER), environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [*run_module(python, STACK_FINGERPRINT), str(config.num_gpus()), config.program.cwd or ".", imports],
        env={**environ, "PYTHONPATH": folders},
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts
