"""The command of a worker in a container, with its mounts and variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.base import installation
from tracking.base.paths import with_home
from tracking.base.secrets import may_be_secret_name, redact
from tracking.machine.environment import (
    BYTECODE,
    COMPUTING_VARIABLES,
    OthersWriteError,
    cache,
    link_of_others,
    nvml,
    private_folder,
    repository,
)  # fmt: skip
from tracking.machine.stacks import Mount, container, image_of
from tracking.record import documents, run_folder

GUARD = Path(__file__).with_name("guard.py")
# Variables about the machine's GPUs; the engine gets the GPUs by UUID.
OUTSIDE = ("NVIDIA_", "CUDA_VISIBLE_DEVICES")
# Folders of the cache that are executed or trusted outside containers, so no image may write to them.
COMPILED = "compiled"
CLOSED = (COMPILED, BYTECODE, "stacks", "images", "mlflow", "ceilings", "versions")


def name_of(run_dir: Path) -> str:
    """The container's name; a placeholder before the run has a folder."""
    try:
        return f"timetrial-{run_folder.read_info(run_dir).uid}"
    except (OSError, ValueError):
        return "timetrial-UID"


def mounts(config: RunConfig, run_dir: Path, user_path: str, kept: Path) -> list[Mount]:
    """The mounts, each at its own path: the run's folder and the cache are writable; code and data are read-only.

    `user_path` is the user's PYTHONPATH, and `kept` the folder of the image's compiled steps. Missing paths are left
    out; the worker reports them. Raises ConfigError for data reached through another user's link.
    """
    folder = Path.cwd()
    user_folders = [Path(path).absolute() for path in user_path.split(os.pathsep) if path]
    named = {"model.hparams": paths(config.model.hparams), "dataset.tokenizer": paths(config.dataset.tokenizer)}
    for key, places in named.items():
        for path in places:
            check_links(path, key)
    read = [installation.CODE, *user_folders, *chain.from_iterable(named.values())]
    closed = [cache().absolute() / room for room in CLOSED]
    written = [run_dir.absolute(), cache().absolute(), kept]
    if config.dataset.path:
        data = with_home(config.dataset.path).absolute()
        check_links(data, "dataset.path")
        (written if config.dataset.download else read).append(data)
    # The working directory needs no mount of its own if it contains another mount.
    if not any(path.is_relative_to(folder) or folder.is_relative_to(path) for path in (*read, *written)):
        read.append(folder)
    if run_dir.exists():  # a dry run makes none
        for room in ((), *((name,) for name in CLOSED), kept.relative_to(cache().absolute()).parts):
            private_folder(*room)
        for path in written:
            path.mkdir(parents=True, exist_ok=True)
    read_only = [Mount(str(path), str(path)) for path in [*closed, *read] if path.exists()]
    return read_only + [Mount(str(path), str(path), True) for path in written]


def check_links(path: Path, key: str) -> None:
    """Raise ConfigError if another user's link leads to a path: the container would see what that user chose."""
    try:
        link = link_of_others(path)
    except OthersWriteError as error:
        raise ConfigError(f"{key}={path}: {error}") from error
    if link is not None:
        raise ConfigError(
            f"{key}={path}: {link} is a link that another user made. Next: give the path behind it: {path.resolve()}"
        )


def paths(value: Any) -> list[Path]:
    """The files and folders of this machine that options name by a path with a slash, such as pretrained weights."""
    if isinstance(value, dict):
        return [path for inner in value.values() for path in paths(inner)]
    if isinstance(value, list):
        return [path for inner in value for path in paths(inner)]
    if not isinstance(value, str) or "/" not in value:
        return []
    path = with_home(value).absolute()
    return [path] if path.exists() else []


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The launcher's variables that say how to compute; others may name paths that a container does not have.

    Secrets are left out, since everyone who may list processes can read a container's variables.
    """
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(COMPUTING_VARIABLES)
        and not name.startswith(OUTSIDE)
        and not value.startswith("/")
        and not may_be_secret_name(name)
        and redact(value) == value
    }


def compiled(config: RunConfig, digest: str | None) -> Path:
    """The folder of an image's compiled steps."""
    return cache().absolute() / COMPILED / (digest or config.stack.name).replace(":", "-")[:23]


def variables(kept: Path, digest: str | None, uuids: list[str]) -> dict[str, str]:
    """The extra variables of a worker in a container, whose user may have no name and no home."""
    user = {"HOME": "/tmp", "USER": "timetrial", "LOGNAME": "timetrial"}
    # Compiled steps outlive the container; each image has its own folder.
    steps = {"TORCHINDUCTOR_CACHE_DIR": str(kept / "inductor"), "TRITON_CACHE_DIR": str(kept / "triton")}
    gpus = {"CUDA_VISIBLE_DEVICES": ",".join(uuids)} if uuids else {}
    image = {"TIMETRIAL_IMAGE": digest} if digest else {}
    return {**user, **steps, **gpus, **image, "PYTHONNOUSERSITE": "1"}


def wrapped(
    config: RunConfig, run_dir: Path, worker: list[str], env: Mapping[str, str], user_path: str,
    environ: Mapping[str, str],
) -> tuple[list[str], dict[str, str], list[str]]:  # fmt: skip
    """The command that runs `worker` in the stack's container, its own environment, and the command that ends it.

    Raises ConfigError if the image is missing or something cannot be mounted; OSError if the run's folder cannot be
    written to.
    """
    stack, name = config.stack, name_of(run_dir)
    image = image_of(stack)
    uuids = [gpu.uuid for gpu in config.chosen(nvml.visible_gpus(environ))] if config.on_gpu() else []
    guarded = [worker[0], "-I", str(GUARD), str(run_dir.absolute()), str(Path.cwd()), *worker]
    kept = compiled(config, image.digest)
    variables_inside = {**inherited(environ), **variables(kept, image.digest, uuids), **env}
    if run_dir.exists():  # a dry run makes none
        if config.is_program():
            run_folder.write_plain_config(run_dir, config)
        code = Path(config.program.cwd or ".") if config.is_program() else None
        documents.write_json(run_dir / run_folder.GIT, repository.ask(code)())
        variables_inside[repository.GIT_FILE] = str(run_dir.absolute() / run_folder.GIT)
    planned = container.plan(
        stack, image, name, guarded, variables_inside, mounts(config, run_dir, user_path, kept), uuids
    )
    engine_env = {**environ, **container.variables(stack, planned)}
    return container.command(stack, planned), engine_env, container.removal(stack, name)
