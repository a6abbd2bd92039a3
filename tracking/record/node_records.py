"""The machines of a run: what each is called, and the files that each but the first has for itself in the run folder.

The first node's files have the names that a run on one machine has.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from tracking.record import files, run_folder

# In a worker's environment; the second in a launcher's too.
RANK, NAME, RENDEZVOUS = "TIMETRIAL_NODE_RANK", "TIMETRIAL_NODE_NAME", "TIMETRIAL_RENDEZVOUS"
SPARED = "TIMETRIAL_SPARED"  # is set for a worker that leaves SIGTERM to its supervisor
COMPANION_LOG = ".companion.log"
OTHER_JOURNAL = re.compile(r"journal-([\w.-]+)\.jsonl", re.ASCII)


def name(environ: Mapping[str, str] = os.environ) -> str:
    """What this machine is called, in characters that a file's name and a metric's key can hold."""
    return re.sub(r"[^\w-]", "_", environ.get(NAME) or platform.node() or "node", flags=re.ASCII)


def rank(environ: Mapping[str, str] = os.environ) -> int:
    """The place of this worker's machine among those of the run."""
    return int(environ.get(RANK, 0))


def rendezvous(environ: Mapping[str, str] = os.environ) -> str:
    """HOST:PORT of the run's first node, as its launcher has told this worker."""
    return environ[RENDEZVOUS]


def file_of(file: str, node: str) -> str:
    """What a node but the first calls a file of its own: `journal-NODE.jsonl`."""
    stem, _, ending = file.rpartition(".")
    return f"{stem}-{node}.{ending}"


def other_journals(folder: Path) -> list[str]:
    """The names of the journals of all nodes but the first."""
    return sorted(file for file in files.names(folder) if OTHER_JOURNAL.fullmatch(file))


def node_of(file: str) -> str:
    """The node that another node's journal is of."""
    match = OTHER_JOURNAL.fullmatch(file)
    assert match
    return match[1]


def companion_log(node: str = "") -> str:
    """What the companion of a script's run writes its errors to, on this node or on the head."""
    return file_of(COMPANION_LOG, node) if node else COMPANION_LOG


def failure_file(node: str) -> str:
    """Where the worker of a node but the first leaves why it failed."""
    return file_of(run_folder.FAILURE.format(rank="s"), node)
