"""The processes of a script's run: their machines, and whether they have reached the target.

The head node has the run. Each other node has a companion, which samples it.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from conf.schema import ConfigError
from conf.target import Target
from tracking.api import script
from tracking.api.script_process import THIS_PROCESS
from tracking.api.script_run import say
from tracking.machine.environment import Collector, fingerprint
from tracking.measure.training import Ranks
from tracking.record import Journal, attempts, documents, node_records, run_folder

# Variables with the number of a process's machine, from torchrun, Slurm and Lightning's plain environment.
NODE_NUMBER_VARIABLES = ("GROUP_RANK", "SLURM_NODEID", "NODE_RANK")
# Frameworks whose processes need no group of PyTorch's.
OTHER_FRAMEWORKS = ("jax", "tensorflow")
FOLDER_VISIBLE_SEC = 10.0  # A shared file system may show a new folder late.


@dataclass(frozen=True)
class Nodes:
    """The machines of a run: `node_by_rank` has the machine's name for each rank; `rank` is this process's.

    `gpu_by_rank` has the UUID of each rank's GPU, where it was asked for.
    """

    node_by_rank: tuple[str, ...]
    rank: int = 0
    gpu_by_rank: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.node_by_rank[self.rank]

    @property
    def names(self) -> list[str]:
        """The names of the machines, the head node first."""
        return list(dict.fromkeys(self.node_by_rank))

    @property
    def processes_here(self) -> int:
        return self.node_by_rank.count(self.name)

    @property
    def gpus_here(self) -> list[str]:
        """The UUIDs of the GPUs of the processes on this machine."""
        by_rank = zip(self.node_by_rank, self.gpu_by_rank, strict=True)
        return list(dict.fromkeys(gpu for name, gpu in by_rank if name == self.name))

    def leads_other_node(self) -> bool:
        """Whether this is the first process of a non-head node."""
        return self.rank > 0 and self.node_by_rank.index(self.name) == self.rank

    def sample_others(
        self,
        folder: str,
        take_fingerprint: Callable[[], fingerprint.Fingerprint],
        ranks: Ranks,
        journal: Journal | None,
    ) -> None:
        """Start sampling on each non-head node, and compare the fingerprints of all nodes. A collective call.

        `take_fingerprint` takes this machine's. `journal` is the run's, None except in rank 0.
        """
        if len(self.names) == 1:
            return
        local = fingerprint.Fingerprint()
        if self.leads_other_node():
            local = self._start_sampling(Path(folder), take_fingerprint())
        fingerprints = [json.loads(text) for text in ranks.gather_texts(json.dumps(local))]
        if journal is not None:
            head = documents.read_json(Path(folder) / run_folder.FINGERPRINT)
            journal.tags(fingerprint.compared(self.names, [head, *filter(None, fingerprints)]))

    def _start_sampling(self, folder: Path, facts: fingerprint.Fingerprint) -> fingerprint.Fingerprint:
        deadline = time.monotonic() + FOLDER_VISIBLE_SEC
        while not (folder / run_folder.CONFIG).exists():
            if time.monotonic() > deadline:
                say(f"node {self.name}: not sampled, since {folder} is missing. Next: give a runs_dir on a shared disk")
                return facts
            time.sleep(0.1)
        with suppress(OSError):  # A full disk. The run's own files are on the head node.
            documents.write_json(folder / node_records.file_of(run_folder.FINGERPRINT, self.name), facts)
        THIS_PROCESS.start_companion(folder, None, self.name, [gpu["uuid"] for gpu in facts.get("used", [])])
        return facts


@dataclass
class SharedTarget:
    """Whether the `targets` are reached: by rank 0's metrics, so that all ranks stop at the same evaluation."""

    targets: Mapping[str, Target]
    reached: bool = False
    _reported: bool = False  # whether it was said that the ranks' metrics differ

    def is_first_reached_by(self, metrics: Mapping[str, float], ranks: Ranks) -> bool:
        """Note the metrics of an evaluation. A collective call."""
        if self.reached or not self.targets:
            return False
        local = torch.tensor([metrics.get(name, math.nan) for name in self.targets], dtype=torch.float64)
        by_rank = ranks.gather(local)
        self._report_differing(by_rank)
        self.reached = attempts.reached(dict(zip(self.targets, by_rank[0].tolist(), strict=True)), self.targets)
        return self.reached

    def _report_differing(self, by_rank: torch.Tensor) -> None:
        """Report once, on rank 0, a metric that is not the same on all ranks."""
        if self._reported or torch.allclose(by_rank, by_rank[0].expand_as(by_rank), rtol=1e-4, equal_nan=True):
            return
        self._reported = True
        if dist.get_rank() == 0:
            values = "; ".join(
                f"{name}={', '.join(f'{value:.4g}' for value in column)}"
                for name, column in zip(self.targets, by_rank.T.tolist(), strict=True)
            )
            say(
                f"the target's metric differs between the processes, and that of rank 0 counts. By rank: {values}."
                " Next: reduce it over the processes, e.g. self.log(..., sync_dist=True) or dist.all_reduce"
            )


def device_of(given: torch.device | str | None) -> torch.device:
    """The device that trains, with its number if it is a GPU: without one, the current GPU."""
    try:
        device = torch.device(given or ("cuda" if torch.cuda.is_available() else "cpu"))
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"device={given!r}: {error}. Next: give a device such as 'cpu' or 'cuda:0'") from None
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def take_fingerprint(device: torch.device, nodes: Nodes) -> fingerprint.Fingerprint:
    """The fingerprint of this machine, with the GPUs of the processes on it."""
    gpus: list[int | str] = []
    if device.type == "cuda":
        gpus = [device.index] if nodes.processes_here == 1 else [*nodes.gpus_here]
    return Collector(repository=script.folder()).finish(torch, gpus)


def check_group(environ: Mapping[str, str] = os.environ) -> None:
    """Raise ConfigError if the launcher started several ranks for PyTorch, and they have no process group yet.

    Tasks of srun without MASTER_ADDR may be trainings of their own, and so may all others without these variables.
    """
    if dist.is_initialized() or "MASTER_ADDR" not in environ or any(name in sys.modules for name in OTHER_FRAMEWORKS):
        return
    if "RANK" in environ and "WORLD_SIZE" in environ:
        key = "WORLD_SIZE"
    elif "SLURM_PROCID" in environ and "SLURM_STEP_ID" in environ:  # sbatch alone sets no step.
        key = "SLURM_STEP_NUM_TASKS"
    else:
        return
    number = environ.get(key, "")
    if number.isdigit() and int(number) > 1:
        raise ConfigError(
            f"time_trial: {key}={number}, but there is no process group, so each process would be a run. Next: call"
            f" init_process_group first, or unset MASTER_ADDR if each process is a training of its own"
        )


def nodes_of(ranks: Ranks, device: torch.device | None = None) -> Nodes:
    """The machine of every rank, and its GPU if `device` is this process's. A collective call."""
    rank = dist.get_rank() if ranks.size > 1 else 0
    names = unique_names(ranks.gather_texts(json.dumps(identity())))
    if device is None:
        return Nodes(names, rank)
    uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else ""
    return Nodes(names, rank, tuple(ranks.gather_texts(uuid)))


def identity() -> list[str]:
    """This machine's name, and its number from the launcher."""
    number = next((os.environ[name] for name in NODE_NUMBER_VARIABLES if name in os.environ), "0")
    node_name = os.environ.get(node_records.NAME) or os.environ.get("SLURMD_NODENAME", "")
    return [node_records.name({node_records.NAME: node_name}), number]


def unique_names(identities: list[str]) -> tuple[str, ...]:
    """A unique name for each machine. A repeated name, as from two launchers on a host, gets a number."""
    names: dict[str, str] = {}
    for identity_text in dict.fromkeys(identities):
        name = json.loads(identity_text)[0]
        num_namesakes = sum(json.loads(earlier)[0] == name for earlier in names)
        names[identity_text] = f"{name}-{num_namesakes}" if num_namesakes else name
    return tuple(names[identity_text] for identity_text in identities)
