"""The worker's first process: imports, records the environment, and becomes torchrun's agent, which forks the ranks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from conf import schema
from tracking.base import installation
from tracking.jobs.worker_command import ALL_IMPORTS
from tracking.machine.environment import fingerprint
from tracking.machine.stacks import check_promise
from tracking.record import Failure, Journal, Result, documents, node_records, part_of_start, run_folder
from trainers.loop.worker import other_nodes, torchrun
from trainers.loop.worker.rank import first_failure
from trainers.loop.worker.signal_deaths import die_of_signals, signal_of
from trainers.loop.worker.threads import limit_threads


def main(run_dir: Path, forked_from: int | None = None, collector: fingerprint.Collector | None = None) -> int:
    """Run the training in `run_dir` and return 0, or write its failure to result.json and return 1.

    `forked_from` is the process id of the server that forked this worker (fork_server.py). `collector` is given if the
    server has begun the run's fingerprint.

    A process that gets a stop signal dies of it, so that its parent sees the cause: a rank dies at once, the agent
    after it has ended its ranks.
    """
    die_of_signals()
    os.register_at_fork(after_in_child=die_of_signals)  # Ranks would inherit the signal handlers of torchrun's agent.
    try:
        return run_training(run_dir, forked_from, collector)
    except Exception as error:
        if number := signal_of(error):
            die_of_signals()
            os.kill(os.getpid(), number)
        if run_folder.is_full(error):
            return fail(run_dir, Failure("disk_full", f"{type(error).__name__}: {error}"))
        raise


def run_training(run_dir: Path, forked_from: int | None, collector: fingerprint.Collector | None) -> int:
    """Run the training as `main` does, without its handling of signals."""
    config = run_folder.read_config(run_dir)
    per_node = config.processes_per_node()
    limit_threads(config)
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5")
    collector = collector or fingerprint.Collector()  # Its commands run during the imports.
    log = None if node_records.rank() else Journal(run_dir / run_folder.JOURNAL)
    if log and forked_from is not None:
        log.event("forked", forked_from)  # The server has made the imports below.
    with part_of_start(log, "import"):
        import_training(run_dir)
        import torch
        import torch.distributed.launcher.api
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    if config.nodes > 1:
        other_nodes.use_the_route()
    try:
        facts = collector.finish(torch, range(per_node if config.on_gpu() else 0))
        environment = record_environment(config, run_dir, facts)
        if config.nodes > 1:
            environment |= other_nodes.compared(config, run_dir)
        assert not torch.cuda.is_initialized(), "a forked process cannot use CUDA once its parent has"
        if log:
            log.event("process_group_start")  # Rank 0 writes process_group_stop when it has joined.
        torchrun.launch(config, run_dir, environment)
    except schema.ConfigError as error:
        return fail(run_dir, Failure("bad_input", str(error)))
    except ChildFailedError as error:
        return fail(run_dir, first_failure(run_dir, error))
    return 0


def import_training(run_dir: Path | None) -> None:
    """Import what the ranks need before they are forked, and hide slow packages that they do not need.

    If an import fails while packages are hidden, the worker of `run_dir` starts again without hiding any.
    """
    from trainers.loop.worker import lightning_import

    hidden = lightning_import.SLOW if os.environ.get(ALL_IMPORTS, "0") == "0" else ()
    try:
        with lightning_import.as_if_missing(*hidden):
            import trainers.loop.train  # noqa: F401
    except Exception:  # Some packages replace an ImportError by another exception.
        if not hidden or run_dir is None:
            raise
        # Another installed package may need a hidden one.
        os.environ[ALL_IMPORTS] = "1"
        worker = installation.module("trainers.loop.worker")
        os.execv(sys.executable, [sys.executable, "-P", "-m", worker, str(run_dir)])


def record_environment(config: schema.RunConfig, run_dir: Path, facts: dict[str, Any]) -> dict[str, str]:
    """Write the fingerprint's facts and return its tags. Raises ConfigError if they contradict stack.expect."""
    if node_records.rank():
        documents.write_json(run_dir / node_records.file_of(run_folder.FINGERPRINT, node_records.name()), facts)
    else:
        tags = fingerprint.record(run_dir, facts)
        changes = fingerprint.changes(fingerprint.taken(run_dir))
        journal = Journal(run_dir / run_folder.JOURNAL)
        journal.tags(tags | ({"resumed.changed": ",".join(changes)} if changes else {}))
        journal.close()
    check_promise(config.stack, facts)
    return fingerprint.tags(facts)


def fail(run_dir: Path, failure: Failure) -> int:
    """Write the failure as the result, unless the training has finished, and return 1."""
    if node_records.rank():  # Only the head node writes the result. Our launcher sends it this failure.
        failure.message = f"node {node_records.name()}: {failure.message}"
        documents.write_json(run_dir / node_records.failure_file(node_records.name()), failure)
        return 1
    result = run_folder.read_result(run_dir)
    if result is not None and result.status == "finished":
        return 1
    status = "killed" if failure.kind.startswith("signal:") else "failed"
    run_folder.write_result(run_dir, Result(status, failure=failure))
    return 1
