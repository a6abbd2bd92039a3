"""The names of a run's machines, and of their files in the run folder.

The head node's files have the same names as those of a run on one machine.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from tracking.record import files, run_folder

# Variables in a worker's environment; NAME is also read by launchers.
RANK, NAME, RENDEZVOUS = "TIMETRIAL_NODE_RANK", "TIMETRIAL_NODE_NAME", "TIMETRIAL_RENDEZVOUS"
LEAVES_SIGTERM = "TIMETRIAL_SPARED"  # set for a worker that leaves SIGTERM to its supervisor
COMPANION_LOG = ".companion.log"
OTHER_JOURNAL = re.compile(r"journal-([\w.-]+)\.jsonl", re.ASCII)


def name(environ: Mapping[str, str] = os.environ) -> str:
    """The name of this machine, in characters that file names and metric keys allow."""
    return re.sub(r"[^\w-]", "_", environ.get(NAME) or platform.node() or "node", flags=re.ASCII)


def rank() -> int:
    """The rank of this worker's machine among those of the run."""
    return int(os.environ.get(RANK, 0))


def rendezvous() -> str:
    """HOST:PORT of the run's head node, from the environment that the launcher set."""
    return os.environ[RENDEZVOUS]


def file_of(file: str, node: str) -> str:
    """The name of a non-head node's own file: `journal-NODE.jsonl`."""
    stem, _, ending = file.rpartition(".")
    return f"{stem}-{node}.{ending}"


def other_journals(folder: Path) -> list[str]:
    """The names of the journals of all non-head nodes."""
    return sorted(file for file in files.names(folder) if OTHER_JOURNAL.fullmatch(file))


def node_of(file: str) -> str:
    """The node in the name of a non-head node's journal."""
    match = OTHER_JOURNAL.fullmatch(file)
    assert match
    return match[1]


def companion_log(node: str = "") -> str:
    """The error log of the companion of a script's run, on a node; default: on the head node."""
    return file_of(COMPANION_LOG, node) if node else COMPANION_LOG


def failure_file(node: str) -> str:
    """The file in which the worker of a non-head node records its failure."""
    return file_of(run_folder.FAILURE.format(rank="s"), node)
