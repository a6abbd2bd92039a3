"""The command lines of the container engines. This module runs no command.

Sources: the reference of `docker run` and podman-run(1); `apptainer exec` in Apptainer's user guide, which also holds
for SingularityCE; doc/cmd/start.md, doc/image-format.md and conf/hooks/98-nvidia.sh of NVIDIA's enroot; args.c of
NVIDIA's pyxis, and srun(1); the GPU names of the Container Device Interface, nvidia.com/gpu=UUID, which
`nvidia-ctk cdi generate` writes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace

PREFIX = "docker://"  # marks an image that apptainer and enroot fetch from a registry
JOB, NODE = "SLURM_JOB_ID", "SLURMD_NODENAME"  # set by Slurm for processes in a job


@dataclass(frozen=True)
class Mount:
    """A folder or file of the machine (`source`), and its path in the container (`target`)."""

    source: str
    target: str
    writable: bool = False

    @property
    def words(self) -> str:
        return f"{self.source}:{self.target}" + ("" if self.writable else ":ro")


@dataclass(frozen=True)
class Plan:
    """A container before its start. `image` is an id or the path of a file."""

    image: str
    name: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    mounts: list[Mount] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)  # UUIDs
    shm: str = "host"
    user: str | None = None  # UID:GID; None = that of this process
    options: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Engine:
    """A row of the table of engines. The functions build command lines without the program, which comes first.

    `stores`: the engine has a store of images; otherwise an image is a file. `run` needs `variables` in its own
    environment. `program` is the engine's program (default: its name), `runner` the program of `run` if it is another.
    """

    name: str
    stores: bool
    version: list[str]
    run: Callable[[Plan], list[str]]
    pull: Callable[[str, str], list[str]]  # takes an image's name, and the file to write it to
    variables: Callable[[Plan], dict[str, str]] = lambda plan: {}
    reach: Callable[[str], list[str]] | None = None  # queries the registry for an image's manifest
    room: list[str] = field(default_factory=list)  # prints the folder of its store
    remove: Callable[[str], list[str]] | None = None  # ends and removes a container; None: it is a child process
    program: str = ""
    runner: str = ""

    @property
    def programs(self) -> tuple[str, str]:
        """The program that answers about images, and the one that runs them."""
        program = self.program or self.name
        return program, self.runner or program


def docker_run(plan: Plan) -> list[str]:
    # docker needs the quotes: without them a comma would begin another setting.
    gpus = ["--gpus", f'"device={",".join(plan.gpus)}"'] if plan.gpus else []
    return ["run", *common(plan), *gpus, *end(plan)]


def podman_run(plan: Plan) -> list[str]:
    gpus = [word for uuid in plan.gpus for word in ("--device", f"nvidia.com/gpu={uuid}")]
    # Without root, the user's id in the container would be another one outside.
    users = ["--userns", "keep-id"] if os.getuid() else []
    return ["run", *common(plan), "--security-opt", "label=disable", *users, *gpus, *end(plan)]


def common(plan: Plan) -> list[str]:
    """The options that docker and podman share.

    The container ends when its standard input closes, as when the launcher dies
    (tracking/jobs/worker_command/guard.py).
    """
    user = plan.user or f"{os.getuid()}:{os.getgid()}"
    shm = ["--ipc", "host"] if plan.shm == "host" else ["--shm-size", plan.shm]
    # NCCL registers memory, and CUDA's libraries have large stacks. NVIDIA recommends both for its images.
    limits = ["--ulimit", "memlock=-1", "--ulimit", "stack=67108864"] if plan.gpus else []
    mounts = [word for mount in plan.mounts for word in ("--volume", mount.words)]
    env = [word for name, value in plan.env.items() for word in ("--env", f"{name}={value}")]
    void = [] if plan.gpus else ["--env", "NVIDIA_VISIBLE_DEVICES=void"]  # NVIDIA's runtime would add all GPUs
    options = ["--rm", "--interactive", "--name", plan.name, "--pull", "never", "--log-driver", "none"]
    return [*options, "--network", "host", "--user", user, *shm, *limits, *mounts, *env, *void]


def end(plan: Plan) -> list[str]:
    """The end of a command line: the user's options after ours, so that they win; without the image's entry point."""
    return [*plan.options, "--entrypoint", plan.command[0], plan.image, *plan.command[1:]]


def apptainer_exec(plan: Plan) -> list[str]:
    mounts = [word for mount in plan.mounts for word in ("--bind", mount.words)]
    gpus = ["--nv"] if plan.gpus else []
    return ["exec", "--cleanenv", "--no-home", *gpus, *mounts, *plan.options, plan.image, *plan.command]


def apptainer_variables(plan: Plan) -> dict[str, str]:
    """Variables that set the container's environment, since the option --env splits values at commas.

    Both apptainer and singularity read this name. HOME cannot be set.
    """
    env = {**plan.env, **visible(plan)}
    return {f"SINGULARITYENV_{name}": value for name, value in env.items() if name != "HOME"}


def enroot_start(plan: Plan) -> list[str]:
    mounts = [
        word
        for mount in plan.mounts
        for word in ("--mount", f"{mount.source}:{mount.target}:x-create=auto,rbind,{'rw' if mount.writable else 'ro'}")
    ]
    variables = [word for name, value in enroot_variables(plan).items() for word in ("--env", f"{name}={value}")]
    return ["start", *mounts, *variables, *plan.options, plan.image, *plan.command]


def enroot_variables(plan: Plan) -> dict[str, str]:
    return {**plan.env, **visible(plan), "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}


def pyxis_run(plan: Plan) -> list[str]:
    """A step of this process's Slurm job, on this node and beside the current step.

    By default pyxis passes every variable that srun exports, and the image's own values win.
    """
    names = ",".join(enroot_variables(plan))
    mounts = ",".join(f"{mount.source}:{mount.target}:{'rw' if mount.writable else 'ro'}" for mount in plan.mounts)
    here = [f"--nodelist={os.environ[NODE]}"] if NODE in os.environ else []
    step = ["--overlap", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", *here, "--cpu-bind=none"]
    options = ["--no-container-mount-home", "--no-container-entrypoint", f"--container-env={names}"]
    mounted = [f"--container-mounts={mounts}"] if mounts else []
    return [
        *step,
        f"--export={names}",
        *options,
        *mounted,
        *plan.options,
        f"--container-image={plan.image}",
        *plan.command,
    ]


def visible(plan: Plan) -> dict[str, str]:
    """The variable that shows a container these GPUs, for engines without an option for it."""
    return {"NVIDIA_VISIBLE_DEVICES": ",".join(plan.gpus) or "void"}


DOCKER = Engine(
    "docker",
    stores=True,
    version=["version", "--format", "{{.Server.Version}}"],
    run=docker_run,
    pull=lambda image, file: ["pull", "--quiet", image],
    reach=lambda image: ["manifest", "inspect", image],
    room=["info", "--format", "{{.DockerRootDir}}"],
    remove=lambda name: ["rm", "--force", name],
)
PODMAN = Engine(
    "podman",
    stores=True,
    version=["version", "--format", "{{.Client.Version}}"],
    run=podman_run,
    pull=lambda image, file: ["pull", "--quiet", image],
    reach=lambda image: ["manifest", "inspect", image],
    room=["info", "--format", "{{.Store.GraphRoot}}"],
    remove=lambda name: ["rm", "--force", "--ignore", "--time", "0", name],
)
APPTAINER = Engine(
    "apptainer",
    stores=False,
    version=["--version"],
    run=apptainer_exec,
    pull=lambda image, file: ["pull", file, image],
    variables=apptainer_variables,
)
SINGULARITY = Engine("singularity", False, APPTAINER.version, APPTAINER.run, APPTAINER.pull, APPTAINER.variables)
ENROOT = Engine(
    "enroot",
    stores=False,
    version=["version"],
    run=enroot_start,
    pull=lambda image, file: ["import", "--output", file, enroot_uri(image)],
)
PYXIS = replace(ENROOT, name="pyxis", run=pyxis_run, variables=enroot_variables, program="enroot", runner="srun")
ENGINES = {engine.name: engine for engine in (DOCKER, PODMAN, APPTAINER, SINGULARITY, ENROOT, PYXIS)}


def enroot_uri(image: str) -> str:
    """The image's name for enroot, with # after the registry: docker://nvcr.io#nvidia/pytorch:24.01-py3."""
    host, slash, name = image.removeprefix(PREFIX).partition("/")
    registry = slash and ("." in host or ":" in host) and host != "docker.io"
    return f"{PREFIX}{host}#{name}" if registry else f"{PREFIX}{name if host == 'docker.io' else host + slash + name}"
