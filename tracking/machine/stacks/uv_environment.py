"""Environments that uv makes from what a stack declares: once, kept in the cache under a digest of the declaration.

CACHE/stacks/DIGEST/  env/ the environment; requirements.in, overrides.txt what was asked; requirements.txt what it
                      came to; build.log uv's words; complete.json written last, without which it is never used
CACHE/stacks/DIGEST.lock  held while it is made, so that two sweeps make it once
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, StackConfig
from tracking.base.secrets import redact
from tracking.machine.environment import cache, distrust, is_trusted, private_folder
from tracking.record import documents

FORMAT = 1  # part of the digest: another one makes every environment anew
# What every worker needs beside torch. What a workload needs (torchvision, Pillow) the stack declares.
BASE = ("pytorch-lightning>=2.5", "nvidia-ml-py>=12.560", "numpy", "pyyaml")
UNTOLD = ("setuptools",)  # what Triton up to PyTorch 2.6 imports on a GPU, and does not ask for
ROOM_BYTES = 9 * 10**9  # PyTorch with its CUDA libraries, unpacked (5 to 7 GB measured), and the archives meanwhile
MAX_WORDS = 600  # characters of the resolver's words in an error


@dataclass(frozen=True)
class Environment:
    """An environment that is whole."""

    digest: str
    python: Path
    declared: dict[str, Any]
    build_sec: float
    size_bytes: int


def declared(stack: StackConfig) -> dict[str, Any]:
    """All that decides what is installed; without PyTorch, what is asked for alone."""
    base = [f"torch=={stack.torch}", *BASE, *undeclared(stack.torch)] if stack.torch else []
    return {
        "format": FORMAT,
        "python": stack.python or f"{sys.version_info.major}.{sys.version_info.minor}",
        "requirements": [*base, *stack.requirements],
        "overrides": list(stack.overrides),
        "index": stack.index,
        "exclude_newer": stack.exclude_newer,
    }


def undeclared(torch: str) -> tuple[str, ...]:
    """What this version of torch needs beside what it asks for."""
    match = re.match(r"(\d+)\.(\d+)", torch)
    return UNTOLD if match and (int(match[1]), int(match[2])) <= (2, 6) else ()


def summary(stack: StackConfig) -> str:
    """What is installed, in a few words."""
    content = declared(stack)
    parts = [
        f"Python {content['python']}",
        *content["requirements"],
        *(f"override {line}" for line in content["overrides"]),
    ]
    return ", ".join(part for part in parts if part not in (*BASE, *UNTOLD))


def digest(stack: StackConfig) -> str:
    return hashlib.sha256(json.dumps(declared(stack), sort_keys=True).encode()).hexdigest()[:16]


def root() -> Path:
    return cache() / "stacks"


def find(stack: StackConfig) -> Environment | None:
    """The stack's environment, if it is there, whole, and made by nobody else."""
    return read(root() / digest(stack))


def read(folder: Path) -> Environment | None:
    with suppress(OSError, ValueError, TypeError, KeyError):
        facts = documents.read_json(folder / "complete.json")
        python = folder / "env/bin/python"
        if python.exists() and is_trusted(folder):
            return Environment(folder.name, python, facts["declared"], facts["build_sec"], facts["size_bytes"])
    return None


def ready(stack: StackConfig) -> bool:
    """Whether a worker of this stack can start at once."""
    return stack.kind != "uv" or find(stack) is not None


def unused(stacks: Iterable[StackConfig]) -> list[str]:
    """The digests of what is in the cache, whole or not, and of none of these stacks."""
    used = {digest(stack) for stack in stacks if stack.kind == "uv"}
    return [folder.name for folder in sorted(root().glob("*/")) if folder.name not in used]


def find_uv(stack: StackConfig) -> str:
    """The path of uv. Raises ConfigError."""
    if path := shutil.which("uv"):
        return path
    raise ConfigError(f"stack={stack.name}: stack.kind=uv needs uv, which is not on the PATH; pip install uv")


def resolve(stack: StackConfig) -> str:
    """The requirements that the declaration comes to; nothing is installed. Raises ConfigError where there are none."""
    uv = find_uv(stack)
    with tempfile.TemporaryDirectory() as scratch:
        command = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", interpreter(stack)]
        asked, *options = requirements(stack, Path(scratch))
        done = subprocess.run([*command, asked, *options], capture_output=True, text=True, cwd=scratch)
    if done.returncode:
        raise cannot(stack, "does not resolve", done.stderr)
    return done.stdout


def to_fetch(stack: StackConfig) -> str:
    """Words on a Python that is not here, which uv can only try to fetch; nothing where it is here."""
    find = [find_uv(stack), "python", "find", "--no-project", "--no-python-downloads", interpreter(stack)]
    here = not stack.python or subprocess.run(find, capture_output=True).returncode == 0
    return "" if here else f"; Python {stack.python} is not here, and uv has to fetch it"


def make(stack: StackConfig) -> Environment:
    """The stack's environment, made where it is not there. Raises ConfigError; what is half made is never used."""
    from filelock import FileLock

    folder = root() / digest(stack)
    uv = find_uv(stack)
    try:
        private_folder(folder.parent.name)
        with FileLock(f"{folder}.lock"):
            if there := read(folder):
                return there
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            with ExitStack() as unless_whole:  # What is half made would take the room that it lacked.
                unless_whole.callback(shutil.rmtree, folder, ignore_errors=True)
                environment = build(stack, uv, folder)
                unless_whole.pop_all()
            return environment
    except OSError as error:
        raise ConfigError(
            f"stack={stack.name}: its environment cannot be made in {folder.parent}: {error}; set TIMETRIAL_CACHE to a"
            " folder with room that you can write to"
        ) from error


def build(stack: StackConfig, uv: str, folder: Path) -> Environment:
    started = time.monotonic()
    env = folder / "env"
    asked, *options = requirements(stack, folder)
    for command in (
        [uv, "venv", "--no-project", "--python", interpreter(stack), str(env)],
        [uv, "pip", "install", "--python", str(env / "bin/python"), "-r", asked, *options],
    ):
        with (folder / "build.log").open("w") as log:
            # In a folder of its own: where a user stands may be a project, whose settings uv would follow.
            done = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)
        if done.returncode:
            raise cannot(stack, "cannot be made", (folder / "build.log").read_text(errors="replace"))
    freeze = [uv, "pip", "freeze", "--python", str(env / "bin/python")]
    listed = subprocess.run(freeze, capture_output=True, text=True, check=False).stdout
    documents.write_text(folder / "requirements.txt", listed)
    size = sum(path.lstat().st_size for path in env.rglob("*"))
    facts = {"declared": declared(stack), "build_sec": time.monotonic() - started, "size_bytes": size}
    documents.write_json(folder / "complete.json", facts)
    if (environment := read(folder)) is None:
        why = distrust(folder) or "its files went away"
        raise ConfigError(
            f"stack={stack.name}: its environment is not used, since {why}; uv links files from its own cache: set"
            " UV_CACHE_DIR to a folder of your own"
        )
    return environment


def interpreter(stack: StackConfig) -> str:
    """What uv is told of the Python: the version or path that is declared, or this one."""
    return stack.python or sys.executable


def requirements(stack: StackConfig, folder: Path) -> list[str]:
    """Write the files of what is declared; the path of the requirements, and uv's other options."""
    content = declared(stack)
    documents.write_text(folder / "requirements.in", "".join(f"{line}\n" for line in content["requirements"]))
    documents.write_text(folder / "overrides.txt", "".join(f"{line}\n" for line in content["overrides"]))
    options = [str(folder / "requirements.in"), "--override", str(folder / "overrides.txt")]
    options += ["--index", stack.index] if stack.index else []
    return options + (["--exclude-newer", stack.exclude_newer] if stack.exclude_newer else [])


def cannot(stack: StackConfig, what: str, words: str) -> ConfigError:
    """uv's words, shortened, and the declaration."""
    said = " ".join(re.sub(r"[^\x20-\x7e]+", " ", redact(words)).split())
    return ConfigError(
        f"stack={stack.name}: {what} ({summary(stack)}): {said[max(0, said.find('error:')) :][:MAX_WORDS]}"
    )


def remove(digest: str) -> None:
    """Remove an environment. Raises OSError."""
    from filelock import FileLock

    folder = root() / digest
    with FileLock(f"{folder}.lock"):
        (folder / "complete.json").unlink(missing_ok=True)
        shutil.rmtree(folder)
