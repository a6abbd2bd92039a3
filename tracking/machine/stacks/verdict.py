"""Judges whether a stack can run here, before anything is built: needs, findings and a verdict."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from conf.schema import ConfigError, StackConfig
from tracking.base.installation import TRACKING
from tracking.machine.environment import cache, nvml
from tracking.machine.stacks import container, container_images, interpreter, releases, uv_environment
from tracking.machine.stacks.interpreter import NEEDED

if TYPE_CHECKING:
    from rich.table import Table

FITTING = "stack=torch2_9"  # the shipped stack that old drivers run


@dataclass(frozen=True)
class Verdict:
    """A row of the table in dry_run and doctor; `error` is empty if the stack can run.

    `cuda` is that of its torch, if known.
    """

    stack: str
    needs: str
    facts: str
    error: str = ""
    cuda: str | None = None

    @property
    def words(self) -> str:
        return self.error or "can run"


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """The verdicts as a table for a terminal."""
    from rich.table import Table  # Only here: a worker's environment may lack it.

    shown = Table(title="stacks", title_justify="left")
    for heading in ("stack", "needs", "found", "verdict"):
        shown.add_column(heading, overflow="fold")
    for verdict in verdicts:
        shown.add_row(verdict.stack, verdict.needs, verdict.facts, verdict.words)
    return shown


def judge(
    stack: StackConfig, gpus: Sequence[nvml.Gpu], resolve: bool = True, needed: Sequence[str] = NEEDED
) -> Verdict:
    """Judge a stack for a run on these GPUs ([] for the CPU) that needs these packages in it.

    With `resolve`, query uv or a registry whether it is available.
    """
    facts = f"driver {nvml.driver_version() or 'unknown'}" if gpus else "no GPU requested"
    needs, cuda = KINDS.get(stack.kind, stack.kind), None
    try:
        check_keys(stack, needed)
        needs += f" of {stack.container.engine}'s, {stack.container.image}" if stack.kind == "container" else ""
        torch, cuda, present = versions(stack, needed)
        needs += (f": torch {torch}" if torch else "") + (f", CUDA {cuda}" if cuda else "")
        if gpus and torch and cuda:
            needs += f", driver {releases.min_driver(cuda) or '?'} or later"
            check_driver(stack, torch, cuda, gpus)
        facts += f"; {present}"
        if stack.kind == "uv" and uv_environment.find(stack) is None:
            check_room(stack, uv_environment.root(), uv_environment.ROOM_BYTES, f"{TRACKING} stacks --remove")
            if resolve:
                uv_environment.resolve(stack)
                facts += f", but uv found all packages{uv_environment.to_fetch(stack)}"
        if stack.kind == "container" and container_images.find(stack) is None:
            check_room(stack, container_images.store(stack), container_images.ROOM_BYTES, "remove unused images")
            facts += ", but can be" if resolve and container_images.check_reach(stack) else ""
    except ConfigError as error:
        return Verdict(stack.name, needs, facts, str(error), cuda)
    except (OSError, RuntimeError) as error:  # A path that this user cannot read, or ~NAME of no user.
        words = f"stack={stack.name}: {error}. Next: correct the paths that the stack names"
        return Verdict(stack.name, needs, facts, words, cuda)
    return Verdict(stack.name, needs, facts, cuda=cuda)


KINDS = {"native": "this Python", "python": "another Python", "uv": "an environment of uv's", "container": "an image"}
KEYS = {
    "native": (),
    "python": ("python",),
    "uv": ("python", "torch", "requirements", "overrides", "index", "exclude_newer"),
    "container": ("python", "torch", "container"),
}
OF_THE_RUN = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"}  # variables that choose GPUs
REQUIRED = {"python": "python", "uv": "torch"}


def check_keys(stack: StackConfig, needed: Sequence[str] = NEEDED) -> None:
    """Raise ConfigError for an unknown kind, a missing key, and a key without effect."""
    if stack.kind not in KEYS:
        raise ConfigError(f"stack.kind={stack.kind}: no such kind. Allowed: {', '.join(KEYS)}")
    default = StackConfig()
    for key in (*KEYS["uv"], "container"):
        if getattr(stack, key) != getattr(default, key) and key not in KEYS[stack.kind]:
            raise ConfigError(f"stack.{key}: has no effect with stack.kind={stack.kind}. Next: leave it out")
    required = REQUIRED.get(stack.kind)
    if required and not getattr(stack, required) and (required != "torch" or "torch" in needed):
        raise ConfigError(f"stack={stack.name}: stack.kind={stack.kind} needs stack.{required}. Next: give it")
    if chosen := sorted(OF_THE_RUN & stack.env.keys()):
        raise ConfigError(
            f"stack.env.{chosen[0]}={stack.env[chosen[0]]}: the run chooses its GPUs, which it measures."
            " Next: leave it out, and give gpus=[3] for the GPU of index 3"
        )
    if stack.kind == "container":
        container.check_container(stack)


def versions(stack: StackConfig, needed: Sequence[str]) -> tuple[str | None, str | None, str]:
    """Versions of torch and its CUDA, if known and needed, and what exists of the stack. Raises ConfigError."""
    if stack.kind == "container":
        return image_versions(stack, needed)
    if stack.kind == "uv":
        release = releases.release(stack.torch) if stack.torch else None
        made = uv_environment.find(stack)
        has_index = stack.index is not None  # Wheels of another index may be built for another CUDA.
        return stack.torch, release.cuda if release and not has_index else None, "made" if made else "not made yet"
    if stack.kind == "python":
        assert stack.python is not None
        python = interpreter.probe(stack, stack.python, needed)
        return (python.torch, python.cuda, str(python)) if "torch" in needed else (None, None, str(python))
    if "torch" not in needed:
        return None, None, f"Python {sys.version.split()[0]}"
    return metadata.version("torch"), native_cuda(), f"Python {sys.version.split()[0]}"


def image_versions(stack: StackConfig, needed: Sequence[str]) -> tuple[str | None, str | None, str]:
    """`versions` for a container's image, once it is here. Raises ConfigError if a worker cannot run in it."""
    engine, image = container_images.version(stack), container_images.find(stack)
    if image is None:
        container_images.check_name(stack)
        return stack.torch, None, f"{engine}, image not fetched yet"
    container_images.check_architecture(stack, image)
    python = container.python(stack, image, needed)
    words = f"{engine}, image {image.digest or image.run}, {python}"
    if "torch" not in needed:
        return None, None, words
    # Such an image has its own driver library, for forward compatibility with older drivers.
    return python.torch, None if python.compat else python.cuda, words


def native_cuda() -> str | None:
    """The CUDA of this Python's torch, read from its file, since importing it takes seconds."""
    path = Path(str(metadata.distribution("torch").locate_file("torch/version.py")))
    lines = path.read_text().splitlines() if path.exists() else []
    values = [line.partition("=")[2].strip() for line in lines if line.startswith("cuda")]
    return values[0].strip("'") if values and values[0] != "None" else None


def check_driver(stack: StackConfig, torch: str, cuda: str, gpus: Sequence[nvml.Gpu]) -> None:
    """Raise ConfigError if the driver is too old for this CUDA, or the wheel has no code for a GPU."""
    driver, release = nvml.driver_version(), releases.release(torch)
    for gpu in gpus:
        capability = gpu.compute_capability
        least = releases.min_driver(cuda, capability)
        if driver is not None and least is not None and int(driver.split(".")[0]) < least:
            other = f"give {FITTING}" if stack.kind == "native" else "give a stack with an older CUDA"
            raise ConfigError(
                f"stack={stack.name}: CUDA {cuda} of torch {torch} needs driver {least} or later, and this is"
                f" {driver}. Next: {other}, or install a newer driver ({releases.FORWARD_COMPATIBILITY})"
            )
        built = release.capabilities if release and is_default_wheel(stack, torch, cuda, release) else None
        if built and capability is not None and not releases.holds(built, capability):
            held = ", ".join(map(str, built))
            raise ConfigError(
                f"stack={stack.name}: torch {torch} has no code for GPU {gpu.index} ({gpu.name}, compute capability"
                f" {capability}), only for {held}. Next: give a stack with another torch"
            )


def is_default_wheel(stack: StackConfig, torch: str, cuda: str, release: releases.Release) -> bool:
    """Whether this torch is the default index's wheel; other builds may have code for other GPUs."""
    local = torch.partition("+")[2]
    usual = ("", f"cu{cuda.replace('.', '')}")
    return stack.index is None and stack.kind != "container" and cuda == release.cuda and local in usual


def check_room(stack: StackConfig, folder: Path, needed_bytes: int, remedy: str) -> None:
    """Raise ConfigError if the disk has no room for a stack."""
    place = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(place).free
    if free < needed_bytes:
        elsewhere = ", or set TIMETRIAL_CACHE" if folder.is_relative_to(cache()) else ""
        raise ConfigError(
            f"stack={stack.name}: needs up to {needed_bytes / 1e9:.0f} GB, and {place} has"
            f" {free / 1e9:.1f} GB left. Next: make room ({remedy}){elsewhere}"
        )
