"""Environments that uv makes from a stack's declaration, once, kept in the cache under a digest of the declaration.

CACHE/stacks/DIGEST/  env/ the environment; requirements.in, overrides.txt the declaration; requirements.txt the
                      installed versions; build.log uv's output; complete.json written last, without which it is unused
CACHE/stacks/DIGEST.lock  held while it is made, so that two sweeps make it once
CACHE/stacks/DIGEST.used  held while a run uses it
"""

from __future__ import annotations

import hashlib
import json
import platform
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
from tracking.machine.stacks import environment_use
from tracking.record import documents

FORMAT = 1  # part of the digest: a change makes every environment anew
# Needs of every worker beside torch. The stack declares those of workloads (torchvision, Pillow).
BASE = ("pytorch-lightning>=2.5", "nvidia-ml-py>=12.560", "numpy", "pyyaml")
UNDECLARED = ("setuptools",)  # Triton up to PyTorch 2.6 imports it on a GPU without requiring it
ROOM_BYTES = 9 * 10**9  # PyTorch with its CUDA libraries, unpacked (5 to 7 GB measured), and temporary archives
MAX_WORDS = 600  # characters of the resolver's output in an error


@dataclass(frozen=True)
class Environment:
    """A complete environment."""

    digest: str
    python: Path
    declared: dict[str, Any]
    build_sec: float
    size_bytes: int


def declared(stack: StackConfig) -> dict[str, Any]:
    """Everything that decides what is installed; without PyTorch, only the stack's own requirements.

    Machines may share a cache, so it has the architecture, and where this Python is, to which an environment links.
    """
    base = [f"torch=={stack.torch}", *BASE, *undeclared(stack.torch)] if stack.torch else []
    return {
        "format": FORMAT,
        "python": stack.python or f"{sys.version_info.major}.{sys.version_info.minor}",
        "base": None if stack.python else sys.base_prefix,
        "machine": platform.machine(),
        "requirements": [*base, *stack.requirements],
        "overrides": list(stack.overrides),
        "index": stack.index,
        "exclude_newer": stack.exclude_newer,
    }


def undeclared(torch: str) -> tuple[str, ...]:
    """Requirements that this version of torch does not declare."""
    match = re.match(r"(\d+)\.(\d+)", torch)
    return UNDECLARED if match and (int(match[1]), int(match[2])) <= (2, 6) else ()


def summary(stack: StackConfig) -> str:
    """The main content of the environment, as text."""
    content = declared(stack)
    parts = [
        f"Python {content['python']}",
        *content["requirements"],
        *(f"override {line}" for line in content["overrides"]),
    ]
    return ", ".join(part for part in parts if part not in (*BASE, *UNDECLARED))


def digest(stack: StackConfig) -> str:
    return hashlib.sha256(json.dumps(declared(stack), sort_keys=True).encode()).hexdigest()[:16]


def root() -> Path:
    return cache() / "stacks"


def find(stack: StackConfig) -> Environment | None:
    """The stack's environment; None if it is missing, incomplete, or another user may have written it."""
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
    """The digests of environments in the cache, complete or not, that these stacks do not use."""
    used = {digest(stack) for stack in stacks if stack.kind == "uv"}
    return [folder.name for folder in sorted(root().glob("*/")) if folder.name not in used]


def find_uv(stack: StackConfig) -> str:
    """The path of uv. Raises ConfigError."""
    if path := shutil.which("uv"):
        return path
    raise ConfigError(f"stack={stack.name}: stack.kind=uv needs uv, which is not on the PATH. Next: pip install uv")


def resolve(stack: StackConfig) -> str:
    """The resolved requirements, without installing them. Raises ConfigError if they do not resolve."""
    uv = find_uv(stack)
    with tempfile.TemporaryDirectory() as scratch:
        command = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", interpreter(stack)]
        file, *options = requirements(stack, Path(scratch))
        process = subprocess.run([*command, file, *options], capture_output=True, text=True, cwd=scratch)
    if process.returncode:
        raise cannot(stack, "does not resolve", process.stderr)
    return process.stdout


def to_fetch(stack: StackConfig) -> str:
    """A note on a Python that is not here, which uv will try to fetch; empty if it is here."""
    find = [find_uv(stack), "python", "find", "--no-project", "--no-python-downloads", interpreter(stack)]
    here = not stack.python or subprocess.run(find, capture_output=True).returncode == 0
    return "" if here else f"; Python {stack.python} is not here, and uv has to fetch it"


def make(stack: StackConfig) -> Environment:
    """The stack's environment, made if missing, and kept from removal until this process ends. Raises ConfigError.

    An incomplete one is never used.
    """
    from filelock import FileLock

    folder = root() / digest(stack)
    uv = find_uv(stack)
    try:
        private_folder(folder.parent.name)
        with FileLock(f"{folder}.lock"):
            environment = read(folder) or made(stack, uv, folder)
            environment_use.hold(folder)
            return environment
    except OSError as error:
        raise ConfigError(
            f"stack={stack.name}: its environment cannot be made in {folder.parent}: {error}. Next: set TIMETRIAL_CACHE"
            " to a folder with free space that you can write to"
        ) from error


def made(stack: StackConfig, uv: str, folder: Path) -> Environment:
    """A new environment in place of an incomplete one, completely or not at all. Raises ConfigError, OSError."""
    with environment_use.alone(folder), ExitStack() as unless_complete:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        unless_complete.callback(shutil.rmtree, folder, ignore_errors=True)  # It would use disk space that was short.
        environment = build(stack, uv, folder)
        unless_complete.pop_all()
    return environment


def build(stack: StackConfig, uv: str, folder: Path) -> Environment:
    started = time.monotonic()
    env = folder / "env"
    file, *options = requirements(stack, folder)
    for command in (
        [uv, "venv", "--no-project", "--python", interpreter(stack), str(env)],
        [uv, "pip", "install", "--python", str(env / "bin/python"), "-r", file, *options],
    ):
        with (folder / "build.log").open("w") as log:
            # Not in the user's current folder, which may be a project whose settings uv would follow.
            process = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)
        if process.returncode:
            raise cannot(stack, "cannot be made", (folder / "build.log").read_text(errors="replace"))
    freeze = [uv, "pip", "freeze", "--python", str(env / "bin/python")]
    listed = subprocess.run(freeze, capture_output=True, text=True, check=False).stdout
    documents.write_text(folder / "requirements.txt", listed)
    size = sum(path.lstat().st_size for path in env.rglob("*"))
    facts = {"declared": declared(stack), "build_sec": time.monotonic() - started, "size_bytes": size}
    documents.write_json(folder / "complete.json", facts)
    if (environment := read(folder)) is None:
        reason = distrust(folder) or "its files were removed"
        raise ConfigError(
            f"stack={stack.name}: its environment is not used, since {reason}. uv links files from its own cache. Next:"
            " set UV_CACHE_DIR to a folder of your own"
        )
    return environment


def interpreter(stack: StackConfig) -> str:
    """The Python for uv: the declared version or path, else this interpreter."""
    return stack.python or sys.executable


def requirements(stack: StackConfig, folder: Path) -> list[str]:
    """Write the declared requirements to files. Returns the path of the requirements, then uv's other options."""
    content = declared(stack)
    documents.write_text(folder / "requirements.in", "".join(f"{line}\n" for line in content["requirements"]))
    documents.write_text(folder / "overrides.txt", "".join(f"{line}\n" for line in content["overrides"]))
    options = [str(folder / "requirements.in"), "--override", str(folder / "overrides.txt")]
    options += ["--index", stack.index] if stack.index else []
    return options + (["--exclude-newer", stack.exclude_newer] if stack.exclude_newer else [])


def cannot(stack: StackConfig, problem: str, words: str) -> ConfigError:
    """The error with uv's output, shortened, and the declaration."""
    output = " ".join(re.sub(r"[^\x20-\x7e]+", " ", redact(words)).split())
    return ConfigError(
        f"stack={stack.name}: {problem} ({summary(stack)}): {output[max(0, output.find('error:')) :][:MAX_WORDS]}"
    )


def remove(digest: str) -> None:
    """Remove an environment. Raises ConfigError if a run uses it, and OSError."""
    from filelock import FileLock

    folder = root() / digest
    with FileLock(f"{folder}.lock"), environment_use.alone(folder):
        (folder / "complete.json").unlink(missing_ok=True)
        shutil.rmtree(folder)
