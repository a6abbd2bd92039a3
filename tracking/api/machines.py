"""The machines of a script's run. The head node has the run. Each other node has a companion, which samples it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from tracking.api.script_process import THIS_PROCESS
from tracking.api.script_run import say
from tracking.machine.environment import fingerprint
from tracking.measure.training import Ranks
from tracking.record import Journal, documents, node_records, run_folder

# Variables with the number of a process's machine, from torchrun, Slurm and Lightning's plain environment.
NUMBERS = ("GROUP_RANK", "SLURM_NODEID", "NODE_RANK")
VISIBLE_SEC = 10.0  # A shared file system may show a new folder late.


@dataclass(frozen=True)
class Nodes:
    """The machines of a run: `of_ranks` has the machine's name for each rank; `rank` is this process's."""

    of_ranks: tuple[str, ...]
    rank: int = 0

    @property
    def name(self) -> str:
        return self.of_ranks[self.rank]

    @property
    def names(self) -> list[str]:
        """The names of the machines, the head node first."""
        return list(dict.fromkeys(self.of_ranks))

    @property
    def processes_here(self) -> int:
        return self.of_ranks.count(self.name)

    def is_other_lead(self) -> bool:
        """Whether this is the first process of a non-head node."""
        return self.rank > 0 and self.of_ranks.index(self.name) == self.rank

    def sample_others(
        self, folder: str, facts: Callable[[], fingerprint.Fingerprint], ranks: Ranks, log: Journal | None
    ) -> None:
        """Start sampling on each non-head node, and compare the fingerprints of all nodes. A collective call.

        `facts` takes this machine's fingerprint. `log` is the run's journal, in rank 0.
        """
        if len(self.names) == 1:
            return
        own = fingerprint.Fingerprint()
        if self.is_other_lead():
            own = self._sample(Path(folder), facts())
        everyone = [json.loads(words) for words in ranks.words(json.dumps(own))]
        if log is not None:
            head = documents.read_json(Path(folder) / run_folder.FINGERPRINT)
            log.tags(fingerprint.compared(self.names, [head, *(other for other in everyone if other)]))

    def _sample(self, folder: Path, facts: fingerprint.Fingerprint) -> fingerprint.Fingerprint:
        deadline = time.monotonic() + VISIBLE_SEC
        while not (folder / run_folder.CONFIG).exists():
            if time.monotonic() > deadline:
                say(f"node {self.name}: not sampled, since {folder} is missing. Next: give a runs_dir on a shared disk")
                return facts
            time.sleep(0.1)
        with suppress(OSError):  # A full disk. The run's own files are on the head node.
            documents.write_json(folder / node_records.file_of(run_folder.FINGERPRINT, self.name), facts)
        THIS_PROCESS.start_companion(folder, None, self.name, [gpu["uuid"] for gpu in facts.get("used", [])])
        return facts


def nodes_of(ranks: Ranks) -> Nodes:
    """The machine of every rank. A collective call."""
    rank = dist.get_rank() if ranks.size > 1 else 0
    return Nodes(named(ranks.words(json.dumps(identity()))), rank)


def identity(environ: Mapping[str, str] = os.environ) -> list[str]:
    """This machine's name, and its number from the launcher."""
    number = next((environ[name] for name in NUMBERS if name in environ), "0")
    given = environ.get(node_records.NAME) or environ.get("SLURMD_NODENAME", "")
    return [node_records.name({node_records.NAME: given}), number]


def named(identities: list[str]) -> tuple[str, ...]:
    """A unique name for each machine. Later ones of the same name, as of two launchers on a host, get a number."""
    names: dict[str, str] = {}
    for each in dict.fromkeys(identities):
        name = json.loads(each)[0]
        num_before = sum(json.loads(other)[0] == name for other in names)
        names[each] = f"{name}-{num_before}" if num_before else name
    return tuple(names[each] for each in identities)
