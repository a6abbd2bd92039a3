"""The container of a stack: checks its declaration, probes its Python, and plans it for a worker."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from conf.launch_options import ContainerConfig
from conf.schema import ConfigError, StackConfig
from tracking.base.paths import with_home
from tracking.machine.stacks import container_images, interpreter
from tracking.machine.stacks.container_images import Image
from tracking.machine.stacks.engines import JOB, Mount, Plan
from tracking.machine.stacks.interpreter import NEEDED, PROBE, Interpreter

PYTHON = "python3"  # default in an image
PROBE_SEC = 120.0  # an engine's first container of an image may take as long
# Exit codes of docker, podman and shells, which do not come from the command.
EXIT_CODES = {
    125: "the engine could not start the container",
    126: "the command in the image cannot be executed, as with an image of another architecture",
    127: "the image has no such command",
}
_known: dict[str, Interpreter] = {}
# Options that apptainer and enroot lack, with what happens instead.
STORED_ONLY = {"shm": "the machine's /dev/shm is used", "user": "it runs as you"}


def check_container(stack: StackConfig) -> None:
    """Raise ConfigError for a wrong declaration of the stack's container."""
    declared = stack.container
    for key in ("engine", "image"):
        if not getattr(declared, key):
            raise ConfigError(f"stack={stack.name}: stack.container.{key} is missing. Next: give it")
    if str(declared.image).startswith("-"):
        raise ConfigError(
            f"stack={stack.name}: stack.container.image={declared.image}: not an image's name. Allowed: NAME:TAG"
        )
    engine, default = container_images.engine(stack), ContainerConfig()
    check_job(stack)
    for key, instead in STORED_ONLY.items():
        if not engine.stores and getattr(declared, key) != getattr(default, key):
            raise ConfigError(
                f"stack={stack.name}: stack.container.{key}: has no effect with {engine.name} ({instead}). Next: leave"
                " it out"
            )
    if declared.user is not None and not re.fullmatch(r"\d+:\d+", declared.user):
        raise ConfigError(
            f"stack={stack.name}: stack.container.user={declared.user}: not a user. Allowed: UID:GID, as 1000:1000"
        )
    if not re.fullmatch(r"host|[1-9]\d*[bkmg]?", declared.shm):
        raise ConfigError(
            f"stack={stack.name}: stack.container.shm={declared.shm}: not a size. Allowed: host, or a size, as 16g"
        )
    for text in declared.mounts:
        mount(stack, text)


def mount(stack: StackConfig, text: str) -> Mount:
    """The mount of a text OUTSIDE[:INSIDE[:rw]]. Raises ConfigError for another form, and if OUTSIDE is missing."""
    source, *rest = text.split(":")
    target = rest[0] if rest else source
    if not (source.startswith(("/", "~")) and target.startswith(("/", "~")) and rest[1:] in ([], ["rw"], ["ro"])):
        raise ConfigError(
            f"stack={stack.name}: stack.container.mounts: {text}: not a mount. Allowed: OUTSIDE[:INSIDE[:rw]] with"
            " absolute paths, as /data:/data"
        )
    outside = with_home(source)
    if not outside.exists():
        raise ConfigError(
            f"stack={stack.name}: stack.container.mounts: {text}: {outside} does not exist. Next: correct the path"
        )
    return Mount(str(outside), str(with_home(target)), rest[1:] == ["rw"])


def ordered(mounts: Sequence[Mount]) -> list[Mount]:
    """One mount for each target, outer ones first. Of two for a target the last wins; it is writable if either is."""
    by_target: dict[str, Mount] = {}
    for each in mounts:
        writable = each.writable or (each.target in by_target and by_target[each.target].writable)
        by_target[each.target] = Mount(each.source, each.target, writable)
    return [by_target[target] for target in sorted(by_target, key=lambda target: (target.count("/"), target))]


def plan(
    stack: StackConfig, image: Image, name: str, command: list[str], env: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (), gpus: Sequence[str] = (),
) -> Plan:  # fmt: skip
    """A container of the stack, with its own mounts and these. Raises ConfigError for paths that engines refuse."""
    declared = stack.container
    all_mounts = ordered([*(mount(stack, text) for text in declared.mounts), *mounts])
    for path in (path for each in all_mounts for path in (each.source, each.target)):
        if re.search(r"[:,\s]", path):
            raise ConfigError(
                f"stack={stack.name}: {path}: cannot be mounted into a container, since its name has a colon, a comma"
                " or a space. Next: rename it"
            )
    return Plan(
        image.run, name, command, dict(env or {}), all_mounts, list(gpus), declared.shm, declared.user, declared.options
    )


def command(stack: StackConfig, planned: Plan) -> list[str]:
    """The command that runs a planned container. Raises ConfigError if the engine needs a Slurm job."""
    check_job(stack)
    return [container_images.engine(stack).programs[1], *container_images.engine(stack).run(planned)]


def check_job(stack: StackConfig) -> None:
    """Raise ConfigError for an engine within Slurm outside a job, where its command would submit one."""
    name = stack.container.engine
    if container_images.engine(stack).runner == "srun" and JOB not in os.environ:
        raise ConfigError(
            f"stack={stack.name}: stack.container.engine={name}: runs only in a Slurm job. Next: give cluster=slurm, or"
            " engine=enroot"
        )


def removal(stack: StackConfig, name: str) -> list[str]:
    """The command that ends and removes a container with this name; [] if its processes are children of ours."""
    engine = container_images.engine(stack)
    return [engine.programs[0], *engine.remove(name)] if engine.remove else []


def variables(stack: StackConfig, planned: Plan) -> dict[str, str]:
    """The variables that the engine needs in its own environment."""
    return container_images.engine(stack).variables(planned)


def python(stack: StackConfig, image: Image, needed: Sequence[str] = NEEDED) -> Interpreter:
    """The Python of a worker in the container, probed once in a launch. Raises ConfigError if none fits."""
    key_of_probe = f"{stack} {image.run} {needed}"
    if key_of_probe not in _known:
        path = stack.python or PYTHON
        key = f"stack={stack.name}: stack.container.image={stack.container.image}"
        answer = probe(stack, image, path, key)
        interpreter.check_version(key, answer)
        _known[key_of_probe] = interpreter.checked(key, path, answer, "in the image: pip install", needed)
    return _known[key_of_probe]


def probe(stack: StackConfig, image: Image, path: str, key: str) -> dict[str, Any]:
    """The answer of PROBE by the Python at `path` in the image. Raises ConfigError without an answer."""
    name = f"timetrial-probe-{secrets.token_hex(4)}"
    planned = plan(stack, image, name, [path, "-c", PROBE, *NEEDED])
    try:
        process = subprocess.run(
            command(stack, planned), env={**os.environ, **variables(stack, planned)}, timeout=PROBE_SEC,
            capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        end(stack, name)
        raise ConfigError(f"{key}: {path} in it gave no answer in {PROBE_SEC:g} s. Next: give another image") from None
    try:
        answer = json.loads(process.stdout.splitlines()[-1]) if process.returncode == 0 else None
    except (ValueError, IndexError):
        answer = None
    if not isinstance(answer, dict) or "python" not in answer:
        meaning = f"{EXIT_CODES[process.returncode]}; " if process.returncode in EXIT_CODES else ""
        raise ConfigError(
            f"{key}: {path} in it does not answer as a Python does (exit code {process.returncode}: {meaning}"
            f"{stack.container.engine}: {container_images.last_words(process.stderr)}). "
            "Next: give another image, or stack.python, the path of the Python in it"
        )
    return answer


def end(stack: StackConfig, name: str) -> None:
    """End a container if it exists, and wait for that."""
    if words := removal(stack, name):
        subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=PROBE_SEC, check=False)
