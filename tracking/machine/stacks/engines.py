"""How container engines differ: the commands of each. Nothing is run here.

Sources: the reference of `docker run` and podman-run(1); `apptainer exec` of Apptainer's user guide, which is
SingularityCE's too; doc/cmd/start.md, doc/image-format.md and conf/hooks/98-nvidia.sh of NVIDIA's enroot; args.c of
NVIDIA's pyxis, and srun(1); the Container Device Interface's names of GPUs, nvidia.com/gpu=UUID, which
`nvidia-ctk cdi generate` writes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace

PREFIX = "docker://"  # marks an image that apptainer and enroot fetch from a registry
JOB, NODE = "SLURM_JOB_ID", "SLURMD_NODENAME"  # Slurm tells a process in a job these.


@dataclass(frozen=True)
class Mount:
    """A folder or file of the machine, and where the container sees it."""

    source: str
    target: str
    writable: bool = False

    @property
    def words(self) -> str:
        return f"{self.source}:{self.target}" + ("" if self.writable else ":ro")


@dataclass(frozen=True)
class Plan:
    """A container before it is there: what it is made of, and what it runs. `image` is an id or the path of a file."""

    image: str
    name: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    mounts: list[Mount] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)  # their UUIDs
    shm: str = "host"
    user: str | None = None  # UID:GID; None = that of this process
    options: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Engine:
    """One row of the table. The functions build command lines without the program, which stands first.

    `stores` says that it has a store of images, of which it is asked; without one an image is a file. `run` needs the
    variables of `variables` in its own environment. The program has the engine's name, if `program` is empty; `runner`
    is that of `run` where it is another one.
    """

    name: str
    stores: bool
    version: list[str]
    run: Callable[[Plan], list[str]]
    pull: Callable[[str, str], list[str]]  # takes an image's name, and the file to write it to
    variables: Callable[[Plan], dict[str, str]] = lambda plan: {}
    reach: Callable[[str], list[str]] | None = None  # asks the registry for an image's manifest
    room: list[str] = field(default_factory=list)  # prints the folder of its store
    remove: Callable[[str], list[str]] | None = None  # ends and removes a container; None: it is a process of ours
    program: str = ""
    runner: str = ""

    @property
    def programs(self) -> tuple[str, str]:
        """What is asked about images, and what runs them."""
        own = self.program or self.name
        return own, self.runner or own


def docker_run(plan: Plan) -> list[str]:
    # The quotes are docker's: without them a comma would begin another setting than the devices.
    gpus = ["--gpus", f'"device={",".join(plan.gpus)}"'] if plan.gpus else []
    return ["run", *common(plan), *gpus, *end(plan)]


def podman_run(plan: Plan) -> list[str]:
    gpus = [word for uuid in plan.gpus for word in ("--device", f"nvidia.com/gpu={uuid}")]
    # Without root the user's own id would be another one outside.
    users = ["--userns", "keep-id"] if os.getuid() else []
    return ["run", *common(plan), "--security-opt", "label=disable", *users, *gpus, *end(plan)]


def common(plan: Plan) -> list[str]:
    """The options that docker and podman share.

    Its standard input is the launcher's rope: when it is let go, the container ends
    (tracking/jobs/worker_command/guard.py).
    """
    user = plan.user or f"{os.getuid()}:{os.getgid()}"
    shm = ["--ipc", "host"] if plan.shm == "host" else ["--shm-size", plan.shm]
    # NCCL registers memory, and CUDA's libraries have large stacks; as NVIDIA's images ask for.
    limits = ["--ulimit", "memlock=-1", "--ulimit", "stack=67108864"] if plan.gpus else []
    mounts = [word for mount in plan.mounts for word in ("--volume", mount.words)]
    env = [word for name, value in plan.env.items() for word in ("--env", f"{name}={value}")]
    void = [] if plan.gpus else ["--env", "NVIDIA_VISIBLE_DEVICES=void"]  # a default runtime of NVIDIA's adds all GPUs
    own = ["--rm", "--interactive", "--name", plan.name, "--pull", "never", "--log-driver", "none"]
    return [*own, "--network", "host", "--user", user, *shm, *limits, *mounts, *env, *void]


def end(plan: Plan) -> list[str]:
    """The user's options after ours, so that they win; an image's own entry point is left out."""
    return [*plan.options, "--entrypoint", plan.command[0], plan.image, *plan.command[1:]]


def apptainer_exec(plan: Plan) -> list[str]:
    mounts = [word for mount in plan.mounts for word in ("--bind", mount.words)]
    gpus = ["--nv"] if plan.gpus else []
    return ["exec", "--cleanenv", "--no-home", *gpus, *mounts, *plan.options, plan.image, *plan.command]


def apptainer_variables(plan: Plan) -> dict[str, str]:
    """Through variables, since its option --env splits values at commas; singularity's name is read by both.

    HOME cannot be set.
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
    """A step of the job that this process is in, on this node and beside the step that it is in.

    pyxis would give the container every variable that srun exports, and have the image's own win.
    """
    names = ",".join(enroot_variables(plan))
    mounts = ",".join(f"{mount.source}:{mount.target}:{'rw' if mount.writable else 'ro'}" for mount in plan.mounts)
    here = [f"--nodelist={os.environ[NODE]}"] if NODE in os.environ else []
    step = ["--overlap", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", *here, "--cpu-bind=none"]
    own = ["--no-container-mount-home", "--no-container-entrypoint", f"--container-env={names}"]
    mounted = [f"--container-mounts={mounts}"] if mounts else []
    return [*step, f"--export={names}", *own, *mounted, *plan.options, f"--container-image={plan.image}", *plan.command]


def visible(plan: Plan) -> dict[str, str]:
    """What shows a container these GPUs where the engine has no option for them."""
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
    """enroot has a # between the registry and the image's name: docker://nvcr.io#nvidia/pytorch:24.01-py3."""
    host, slash, name = image.removeprefix(PREFIX).partition("/")
    registry = slash and ("." in host or ":" in host) and host != "docker.io"
    return f"{PREFIX}{host}#{name}" if registry else f"{PREFIX}{name if host == 'docker.io' else host + slash + name}"
