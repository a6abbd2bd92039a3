"""The stack is how the worker's command is built: which interpreter, which environment. Needs no torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from conf.schema import RunConfig

LAUNCHER = "TIMETRIAL_LAUNCHER"  # It holds the launcher's process id where the worker is its child.
ROOT = Path(__file__).resolve().parents[2]  # Conf, tracking and trainers are imported from here.


@dataclass(frozen=True)
class WorkerCommand:
    argv: list[str]
    env: dict[str, str]

    def __str__(self) -> str:
        return " ".join(self.argv)


def native(config: RunConfig, run_dir: Path, environ: Mapping[str, str]) -> WorkerCommand:
    """This interpreter, as it is; -P, so that no folder of the user's shadows one of ours.

    The environment is the launcher's without MLflow's variables: the worker never talks to MLflow, and they may hold
    credentials. What the user puts in stack.env is passed on all the same.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), environ.get("PYTHONPATH", "")]))
    settings = {
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        LAUNCHER: str(os.getpid()),  # The worker ends with it, even if it is gone already.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # It is the order of nvidia-smi and NVML.
        **config.stack.env,
    }
    inherited = {name: value for name, value in environ.items() if not name.lstrip("_").startswith("MLFLOW_")}
    return WorkerCommand([sys.executable, "-P", "-m", "trainers.loop.worker", str(run_dir)], {**inherited, **settings})


STACKS = {"native": native}


def worker_command(config: RunConfig, run_dir: Path, environ: Mapping[str, str] = os.environ) -> WorkerCommand:
    """The command and environment that train the run in `run_dir` on the stack of its config."""
    return STACKS[config.stack.kind](config, run_dir, environ)
