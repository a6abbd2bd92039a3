"""A worker's command: its stack decides the interpreter and the environment. Needs no torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from conf.schema import RunConfig
from tracking.base import installation
from tracking.jobs.worker_command import contained
from tracking.machine.environment import bytecode_variables, cache, compiler_variables, nvml, own_sources
from tracking.machine.stacks import Interpreter, needed_by, python_of
from tracking.record import node_records

LAUNCHER = "TIMETRIAL_LAUNCHER"  # holds the launcher's process id if the worker is its child
ALL_IMPORTS = "TIMETRIAL_ALL_IMPORTS"  # set, and not to 0, if the worker hides no package from Lightning's imports
# Variables that an activated environment sets for its own Python.
ENVIRONMENT_VARIABLES = {"VIRTUAL_ENV", "PYTHONHOME", "CONDA_PREFIX", "__PYVENV_LAUNCHER__"}


@dataclass(frozen=True)
class WorkerCommand:
    """A worker's command. If `contained`, it ends when its standard input closes; `ending` removes its container."""

    argv: list[str]
    env: dict[str, str]
    contained: bool = False
    ending: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return " ".join(self.argv)


# Does what -P does from Python 3.11 on: no module in the working directory shadows one of ours.
BEFORE_P = "import runpy, sys; sys.path.remove(''); runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
WORKER = installation.module("trainers.loop.worker")
PROGRAM_WORKER = installation.module("tracking.jobs.program.worker")


def worker_command(config: RunConfig, run_dir: Path, environ: Mapping[str, str] = os.environ) -> WorkerCommand:
    """The command and environment that train the run in `run_dir` on the stack of its config.

    The environment is the launcher's without MLflow's variables: the worker never talks to MLflow, and they may hold
    credentials. Variables of stack.env are always passed on. In a container, the only inherited variables are those
    that say how to compute. Raises ConfigError if a worker cannot run on the stack's Python.
    """
    python = python_of(config.stack, needed_by(config))
    worker = PROGRAM_WORKER if config.is_program() else WORKER
    argv = [sys.executable, "-P", "-m", worker]
    # A program's own environment may lack what a worker imports; a container has no other environment.
    if python is not None and (config.stack.kind == "container" or not config.is_program()):
        argv = run_module(python, worker)
    if config.stack.kind == "container":
        variables = {name: value for name, value in worker_variables(config, environ).items() if name != LAUNCHER}
        engine_environ = {name: value for name, value in environ.items() if not is_mlflows(name)}
        argv.append(str(run_dir.absolute()))
        argv, env, ending = contained.wrapped(
            config, run_dir, argv, variables, search_path(config, environ), engine_environ
        )
        return WorkerCommand(argv, env, contained=True, ending=ending)
    foreign = set() if python is None else ENVIRONMENT_VARIABLES
    inherited = {name: value for name, value in environ.items() if name not in foreign and not is_mlflows(name)}
    stack_python = [python.path] if config.is_program() and python is not None else []
    variables = worker_variables(config, environ)
    if not config.is_program():  # A program keeps its bytecode as the user wants.
        sources = own_sources() if python is None else python.sources
        variables = bytecode_variables(inherited | config.stack.env, sources, make=run_dir.exists()) | variables
    return WorkerCommand([*argv, str(run_dir), *stack_python], {**inherited, **variables})


def run_module(python: Interpreter, module: str) -> list[str]:
    """The command that runs a module of ours on another Python."""
    if python.isolates:
        return [python.path, "-P", "-m", module]
    return [python.path, "-c", BEFORE_P.format(module=module)]


def worker_variables(config: RunConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of every worker."""
    variables = {
        "PYTHONUNBUFFERED": "1",
        LAUNCHER: str(os.getpid()),  # The worker ends when this process does, even if that is before it starts.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order of nvidia-smi and NVML
    }
    # By default a user's workload gets all of torchmetrics; our workloads do not need it.
    if not config.is_program() and not config.model.workload.startswith("trainers."):
        variables[ALL_IMPORTS] = environ.get(ALL_IMPORTS, "1")
    if config.nodes > 1:  # A container's host name may differ from its machine's.
        variables |= {node_records.RANK: str(config.node_rank), node_records.NAME: node_records.name(environ)}
        variables |= {node_records.RENDEZVOUS: str(config.rendezvous)}
    if isinstance(config.gpus, list):  # A UUID names the same GPU, whatever else is visible.
        variables |= {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in config.chosen(nvml.visible_gpus(environ)))}
    # Finding the cache needs a package that another Python may lack.
    variables |= {"TIMETRIAL_CACHE": str(cache())}
    variables |= compiler_variables(environ) if config.stack.kind != "container" else {}
    # Our code comes first, then the user's folders.
    folders = [str(installation.SEARCH_FOLDER), search_path(config, environ)]
    return {**variables, **config.stack.env, "PYTHONPATH": os.pathsep.join(filter(None, folders))}


def search_path(config: RunConfig, environ: Mapping[str, str]) -> str:
    """The user's own PYTHONPATH."""
    return config.stack.env.get("PYTHONPATH", environ.get("PYTHONPATH", ""))


def is_mlflows(name: str) -> bool:
    """Whether a variable belongs to MLflow."""
    return name.lstrip("_").startswith("MLFLOW_")
