"""The process beside a user's script, forked by companion_server.

It samples the machine and mirrors the folder to MLflow. It ends the run if the script was killed. It prints `ready`
once it watches. It holds the folder's lock, passed on by the script. `root` is the root process of the run.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from conf.schema import RunConfig
from tracking.jobs.follow import unfinished
from tracking.jobs.follow.mirror_thread import mirror_of
from tracking.jobs.node import outcome, worker_process
from tracking.machine.usage import CoTenants
from tracking.measure.bottleneck import explain
from tracking.record import Journal, documents, failures, node_records, run_folder

POLL_SEC = 0.2
NICENESS = 10  # importing MLflow takes seconds, which the training must not lose
KILLED = 9
READY = b"ready\n"  # written in one piece, which print does not guarantee


def main(folder: Path, pid: int, root: int) -> int:
    config = run_folder.read_config(folder)
    script = process_of(pid)
    log = Journal(folder / run_folder.JOURNAL)
    uuids = [gpu["uuid"] for gpu in documents.read_json(folder / run_folder.FINGERPRINT).get("used", [])]
    co_tenants = CoTenants(uuids, launcher=root)
    os.nice(NICENESS)
    if mirror := mirror_of(folder, config):
        unfinished.mark(folder)
    os.write(sys.stdout.fileno(), READY)
    with worker_process.sampled(log, uuids, folder, config, co_tenants=co_tenants):
        seen_ms = wait_for(folder, script)
    log.close()
    end(folder, config, pid, seen_ms, co_tenants.tag())
    if mirror is not None and mirror.close(config.tracking.upload_wait_sec):
        unfinished.unmark(folder)
    return 0


def sample_node(folder: Path, node: str, pid: int, gpu_uuids: list[str]) -> int:
    """Sample a non-head node while process `pid` trains there; the head node ends the run."""
    config, script = run_folder.read_config(folder), process_of(pid)
    log = Journal(folder / node_records.file_of(run_folder.JOURNAL, node))
    os.nice(NICENESS)
    os.write(sys.stdout.fileno(), READY)
    with worker_process.sampled(log, gpu_uuids, folder, config, node):
        wait_for(folder, script)
    log.close()
    return 0


def wait_for(folder: Path, script: psutil.Process | None) -> int:
    """Wait until the run has its result or the script's process has ended; return when it was last seen running."""
    seen_ms = asked_ms = run_folder.now_ms()
    while run_folder.read_result(folder) is None and is_running(script):
        time.sleep(POLL_SEC)
        seen_ms, asked_ms = asked_ms, run_folder.now_ms()
    return seen_ms


def end(folder: Path, config: RunConfig, pid: int, seen_ms: int, co_tenants: str) -> None:
    """Write the run's result if the script has not, and the records of an ended run.

    A rank that failed while the script was still running is the cause: torchrun then kills the script.
    """
    failure = None
    if run_folder.read_result(folder) is None:
        message = f"the script (process {pid}) was killed, or ended by os._exit"
        failure = failures.first_of_ranks(folder, failures.killed(folder, KILLED, message, seen_ms))
    with suppress(OSError):
        outcome.record_given_up(folder, config, failure)
    outcome.end(folder, failure, co_tenants, explain(folder, co_tenants))


def process_of(pid: int) -> psutil.Process | None:
    with suppress(psutil.Error):
        return psutil.Process(pid)
    return None


def is_running(process: psutil.Process | None) -> bool:
    """Whether the process still runs (a reused pid does not count)."""
    with suppress(psutil.Error):
        return process is not None and process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
