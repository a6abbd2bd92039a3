"""The worker's first process: torchrun's agent, through torchrun's own API.

It makes one process group a run and forks one process a device. Forking after the imports means that Lightning is
imported once, not once a process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf import schema
from tracking.base import installation
from tracking.machine.environment import fingerprint, processes
from tracking.machine.stacks import check_promise
from tracking.record import Failure, Journal, Result, documents, node_records, run_folder
from trainers.loop.start import part_of_start
from trainers.loop.worker import other_nodes
from trainers.loop.worker.rank import first_failure, run_rank
from trainers.loop.worker.signal_deaths import die_of_signals, signal_of

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

ALL_IMPORTS = "TIMETRIAL_ALL_IMPORTS"  # It is set where `lightning_import` left out too much.


def main(run_dir: Path, forked_from: int | None = None) -> int:
    """Run the training in `run_dir` and return 0, or leave its failure in result.json and return 1.

    `forked_from` is the process id of the server of which this is a fork (fork_server.py).

    Whoever is told to stop dies of the signal: the agent when it has ended its ranks, a rank at once. So whoever waits
    for a process sees what ended it.
    """
    die_of_signals()
    os.register_at_fork(after_in_child=die_of_signals)  # The ranks are forked from the agent, which has handlers.
    try:
        return run_training(run_dir, forked_from)
    except Exception as error:
        if number := signal_of(error):
            die_of_signals()
            os.kill(os.getpid(), number)
        raise


def run_training(run_dir: Path, forked_from: int | None = None) -> int:
    """What `main` does, but for signals."""
    config = run_folder.read_config(run_dir)
    per_node = config.processes_per_node()
    limit_threads(config)
    collector = fingerprint.Collector()  # Its commands run beside the imports.
    log = None if node_records.rank() else Journal(run_dir / run_folder.JOURNAL)
    if log and forked_from is not None:
        log.event("forked", forked_from)  # What follows is imported already.
    with part_of_start(log, "import"):
        import_training(config, run_dir)
        import torch
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    name_methods_quickly()
    if config.nodes > 1:
        other_nodes.use_the_route()
    try:
        facts = collector.finish(torch, range(per_node if config.on_gpu() else 0))
        environment = record_environment(config, run_dir, facts)
        if config.nodes > 1:
            environment |= other_nodes.compared(config, run_dir)
        assert not torch.cuda.is_initialized(), "a forked process cannot use CUDA once its parent has"
        if log:
            log.event("process_group_start")  # Rank 0 ends it, when it has joined.
        elastic_launch(torchrun(config, run_dir), run_rank)(run_dir, environment)
    except schema.ConfigError as error:
        return fail(run_dir, Failure("bad_input", str(error)))
    except ChildFailedError as error:
        return fail(run_dir, first_failure(run_dir, error))
    return 0


def limit_threads(config: schema.RunConfig) -> None:
    """Set, before PyTorch is imported, how many threads a process has, and how they wait."""
    # What torchrun does too: more threads than cores make every process slower. Threads that spin for long while
    # they wait for each other are many times slower than ones that sleep, wherever something else wants a core.
    os.environ.setdefault("OMP_NUM_THREADS", str(processes.threads_each(config.processes_per_node())))
    os.environ.setdefault("GOMP_SPINCOUNT", "100000")
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5")


def import_training(config: schema.RunConfig, run_dir: Path | None) -> None:
    """Import, before the fork, all that the ranks need; what is slow and not needed is left out where that works.

    Where it does not, the worker of `run_dir` starts again with all of it.
    """
    from trainers.loop.worker import lightning_import

    # A workload of the user's own may want all of torchmetrics; ours do not.
    left_out = (
        lightning_import.SLOW if config.model.workload.startswith("trainers.") and ALL_IMPORTS not in os.environ else ()
    )
    try:
        with lightning_import.as_if_missing(*left_out):
            import trainers.loop.train  # noqa: F401
    except Exception:  # Some packages make another exception of an ImportError.
        if not left_out or run_dir is None:
            raise
        # Something else that is installed here needs them: start again, with them.
        os.environ[ALL_IMPORTS] = "1"
        worker = installation.module("trainers.loop.worker")
        os.execv(sys.executable, [sys.executable, "-P", "-m", worker, str(run_dir)])


def torchrun(config: schema.RunConfig, run_dir: Path) -> LaunchConfig:
    """What `torchrun --standalone --nproc-per-node=N --max-restarts=0` sets, or --nnodes=M, but forking."""
    from torch.distributed.launcher.api import LaunchConfig

    several = config.nodes > 1
    return LaunchConfig(
        min_nodes=config.nodes,
        max_nodes=config.nodes,
        nproc_per_node=config.processes_per_node(),
        rdzv_backend="static" if several else "c10d",
        rdzv_endpoint=node_records.rendezvous() if several else "localhost:0",
        rdzv_configs={"rank": node_records.rank(), "timeout": other_nodes.TIMEOUT_SEC} if several else {},
        run_id=run_dir.name,
        max_restarts=0,  # A restart would hide a failure inside a measured time.
        start_method="fork",
        monitor_interval=0.1,
    )


def name_methods_quickly() -> None:
    """Have torchrun's rendezvous name the method of an event without `inspect.stack`.

    That looks for the sources of all modules, 18 times a run, for events that nobody records.
    """
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous

    dynamic_rendezvous.get_method_name = lambda depth=2: sys._getframe(depth).f_code.co_name


def record_environment(config: schema.RunConfig, run_dir: Path, facts: dict[str, Any]) -> dict[str, str]:
    """Write the fingerprint's facts and return its tags. Raises ConfigError where it is not what the stack promises."""
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
    """Write the failure as the result and return 1; a training that has its result by now keeps it."""
    if node_records.rank():  # The result is the first node's; its launcher hears of this from ours.
        failure.message = f"node {node_records.name()}: {failure.message}"
        documents.write_json(run_dir / node_records.failure_file(node_records.name()), failure)
        return 1
    result = run_folder.read_result(run_dir)
    if result is not None and result.status == "finished":
        return 1
    status = "killed" if failure.kind.startswith("signal:") else "failed"
    run_folder.write_result(run_dir, Result(status, failure=failure))
    return 1
