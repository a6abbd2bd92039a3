"""A container as a stack declares it: checked, asked what Python it holds, and planned for a worker."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conf.launch_options import ContainerConfig
from conf.schema import ConfigError, StackConfig
from tracking.machine.stacks import container_images, interpreter
from tracking.machine.stacks.container_images import Image
from tracking.machine.stacks.engines import JOB, Mount, Plan
from tracking.machine.stacks.interpreter import NEEDED, PROBE, Interpreter

PYTHON = "python3"  # an image's, where the stack names none
PROBE_SEC = 120.0  # an engine's first container of an image can take as long
# What docker and podman, and a shell, mean by an exit code that is not the command's own.
EXIT_CODES = {
    125: "the engine could not start the container",
    126: "the command in the image cannot be executed, as with an image of another architecture",
    127: "the image holds no such command",
}
_known: dict[str, Interpreter] = {}
STORED_ONLY = {"shm": "the machine's /dev/shm is used", "user": "it runs as you"}  # not known to apptainer and enroot


def check_container(stack: StackConfig) -> None:
    """Raise ConfigError for what the stack declares of its container and cannot be."""
    asked = stack.container
    for key in ("engine", "image"):
        if not getattr(asked, key):
            raise ConfigError(f"stack={stack.name}: stack.kind=container needs stack.container.{key}; give it")
    if str(asked.image).startswith("-"):
        raise ConfigError(f"stack={stack.name}: stack.container.image={asked.image}: is no image's name")
    own, default = container_images.engine(stack), ContainerConfig()
    check_job(stack)
    for key, instead in STORED_ONLY.items():
        if not own.stores and getattr(asked, key) != getattr(default, key):
            raise ConfigError(
                f"stack={stack.name}: stack.container.{key}: has no effect with {own.name} ({instead}); leave it out"
            )
    if asked.user is not None and not re.fullmatch(r"\d+:\d+", asked.user):
        raise ConfigError(f"stack={stack.name}: stack.container.user={asked.user}: give UID:GID, as 1000:1000")
    if not re.fullmatch(r"host|[1-9]\d*[bkmg]?", asked.shm):
        raise ConfigError(f"stack={stack.name}: stack.container.shm={asked.shm}: give host, or a size, as 16g")
    for text in asked.mounts:
        mount(stack, text)


def mount(stack: StackConfig, text: str) -> Mount:
    """OUTSIDE[:INSIDE[:rw]]. Raises ConfigError for another form, and for what is not there."""
    source, *rest = text.split(":")
    target = rest[0] if rest else source
    if not (source.startswith(("/", "~")) and target.startswith(("/", "~")) and rest[1:] in ([], ["rw"], ["ro"])):
        raise ConfigError(
            f"stack={stack.name}: stack.container.mounts: {text}: give OUTSIDE[:INSIDE[:rw]] with whole paths, as"
            " /data:/data"
        )
    outside = Path(source).expanduser()
    if not outside.exists():
        raise ConfigError(f"stack={stack.name}: stack.container.mounts: {text}: {outside} is not there; correct it")
    return Mount(str(outside), str(Path(target).expanduser()), rest[1:] == ["rw"])


def ordered(mounts: Sequence[Mount]) -> list[Mount]:
    """One mount for each place, outer ones first. Of two for one place the last, writable where one of them is."""
    by_target: dict[str, Mount] = {}
    for each in mounts:
        writable = each.writable or (each.target in by_target and by_target[each.target].writable)
        by_target[each.target] = Mount(each.source, each.target, writable)
    return [by_target[target] for target in sorted(by_target, key=lambda target: (target.count("/"), target))]


def plan(
    stack: StackConfig, image: Image, name: str, command: list[str], env: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (), gpus: Sequence[str] = (),
) -> Plan:  # fmt: skip
    """A container of the stack, with the mounts of its own and these. Raises ConfigError for what no engine mounts."""
    asked = stack.container
    every = ordered([*(mount(stack, text) for text in asked.mounts), *mounts])
    for path in (path for each in every for path in (each.source, each.target)):
        if re.search(r"[:,\s]", path):
            raise ConfigError(
                f"stack={stack.name}: {path}: cannot be mounted into a container, since its name holds a colon, a comma"
                " or a space; move it"
            )
    return Plan(image.run, name, command, dict(env or {}), every, list(gpus), asked.shm, asked.user, asked.options)


def command(stack: StackConfig, planned: Plan) -> list[str]:
    """Raises ConfigError where the engine would need a job of Slurm's."""
    check_job(stack)
    return [container_images.engine(stack).programs[1], *container_images.engine(stack).run(planned)]


def check_job(stack: StackConfig) -> None:
    """Raise ConfigError for an engine that is a part of Slurm outside a job, where its command would submit one."""
    name = stack.container.engine
    if container_images.engine(stack).runner == "srun" and JOB not in os.environ:
        raise ConfigError(
            f"stack={stack.name}: stack.container.engine={name}: runs in a job of Slurm's alone; give cluster=slurm, or"
            " engine=enroot"
        )


def removal(stack: StackConfig, name: str) -> list[str]:
    """The command that ends and removes a container of this name; [] where its processes are ours to end."""
    own = container_images.engine(stack)
    return [own.programs[0], *own.remove(name)] if own.remove else []


def variables(stack: StackConfig, planned: Plan) -> dict[str, str]:
    """What the engine needs in its own environment."""
    return container_images.engine(stack).variables(planned)


def python(stack: StackConfig, image: Image, needed: Sequence[str] = NEEDED) -> Interpreter:
    """The Python that a worker runs on in the container. Raises ConfigError where there is none that it can run on.

    An image is asked once a launch.
    """
    asked = f"{stack} {image.run} {needed}"
    if asked not in _known:
        path = stack.python or PYTHON
        key = f"stack={stack.name}: stack.container.image={stack.container.image}"
        answer = probe(stack, image, path, key)
        interpreter.check_version(key, answer)
        _known[asked] = interpreter.checked(key, path, answer, "in the image: pip install", needed)
    return _known[asked]


def probe(stack: StackConfig, image: Image, path: str, key: str) -> dict[str, Any]:
    """The answer of the Python at `path` in the image. Raises ConfigError where there is none."""
    name = f"timetrial-probe-{secrets.token_hex(4)}"
    planned = plan(stack, image, name, [path, "-c", PROBE, *NEEDED])
    try:
        done = subprocess.run(
            command(stack, planned), env={**os.environ, **variables(stack, planned)}, timeout=PROBE_SEC,
            capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        end(stack, name)
        raise ConfigError(f"{key}: {path} in it gave no answer in {PROBE_SEC:g} s; give another image") from None
    try:
        answer = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    except (ValueError, IndexError):
        answer = None
    if not isinstance(answer, dict) or "python" not in answer:
        meaning = f"{EXIT_CODES[done.returncode]}; " if done.returncode in EXIT_CODES else ""
        raise ConfigError(
            f"{key}: {path} in it does not answer as a Python does (exit code {done.returncode}: {meaning}"
            f"{stack.container.engine}: {container_images.last_words(done.stderr)}); "
            "give another image, or stack.python, the path of the Python in it"
        )
    return answer


def end(stack: StackConfig, name: str) -> None:
    """End a container that may be there, and wait for it."""
    if words := removal(stack, name):
        subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=PROBE_SEC, check=False)
