"""A stack's Python, asked what it holds before anything is trained with it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, StackConfig
from conf.secrets import redact

OLDEST, NEWEST = (3, 10), (3, 14)
PROBE_SEC = 60.0
# What every worker imports beside PyTorch: distribution and what it is for.
NEEDED = ("torch", "pytorch-lightning", "numpy", "PyYAML")
PROBE = """
import glob, importlib.metadata as metadata, json, platform, re, sys
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
def cuda():
    try:
        text = metadata.distribution("torch").locate_file("torch/version.py").read_text()
    except (metadata.PackageNotFoundError, OSError):
        return None
    match = re.search(r"^cuda[^=]*= '([\\d.]+)'", text, re.M)
    return match and match[1]
print(json.dumps({"python": platform.python_version(), "machine": platform.machine(), "cuda": cuda(),
    "compat": bool(glob.glob("/usr/local/cuda*/compat/**/libcuda.so*", recursive=True)),
    "packages": {name: version(name) for name in sys.argv[1:]}}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that a worker can run on, and the versions in it; `cuda` is what its torch is built for.

    `compat` says that the file system holds a compatibility library of a newer driver, as images do.
    """

    path: str
    python: str
    torch: str
    lightning: str
    cuda: str | None
    compat: bool = False

    @property
    def isolates(self) -> bool:
        """Whether -P is there: not before 3.11."""
        return tuple(map(int, self.python.split(".")[:2])) >= (3, 11)


def probe(stack: StackConfig, path: str) -> Interpreter:
    """Ask the Python at `path`. Raises ConfigError for none, one too old or new, or without what a worker needs."""
    key = f"stack={stack.name}: stack.python={path}"
    if not Path(path).is_file():
        raise ConfigError(f"{key}: no such file; give the path of a Python, as venv/bin/python")
    return checked(key, path, ask(key, path), f"{path} -m pip install")


def checked(key: str, path: str, answer: dict[str, Any], install: str) -> Interpreter:
    """The Python of PROBE's answer; `install` begins the command that installs what is missing. Raises ConfigError."""
    python = tuple(map(int, answer["python"].split(".")[:2]))
    if not OLDEST <= python <= NEWEST:
        allowed = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
        raise ConfigError(f"{key}: is Python {answer['python']}; a worker runs on {allowed}: give another")
    packages: dict[str, str | None] = answer["packages"]
    if missing := [name for name in NEEDED if packages[name] is None]:
        raise ConfigError(f"{key}: lacks {', '.join(missing)}; install: {install} {' '.join(missing)}")
    torch, lightning = packages["torch"], packages["pytorch-lightning"]
    assert torch is not None
    assert lightning is not None
    return Interpreter(path, answer["python"], torch, lightning, answer["cuda"], bool(answer.get("compat")))


def ask(key: str, path: str) -> dict[str, Any]:
    """The answer of PROBE. Raises ConfigError where there is none."""
    try:
        done = subprocess.run(
            [path, "-c", PROBE, *NEEDED], capture_output=True, text=True, timeout=PROBE_SEC, stdin=subprocess.DEVNULL
        )
        answer = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfigError(
            f"{key}: does not answer as a Python does ({redact(str(error))[:200]}); give another"
        ) from None
    if not isinstance(answer, dict) or "python" not in answer:
        words = " ".join(done.stderr.split())[-200:]
        raise ConfigError(
            f"{key}: does not answer as a Python does (exit code {done.returncode}: {redact(words)}); give another"
        )
    return answer
