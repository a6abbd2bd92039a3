"""Starts the compilers before the data are made: helper processes, and Inductor with its own processes.

Their imports take seconds, during which the data are made. Only a run that will compile anew on a GPU starts them.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from conf.schema import RunConfig
from tracking.record import Journal, part_of_start
from trainers.loop.warmup import compile_first, parallel
from trainers.loop.warmup.trace_folder import keep_traces
from trainers.ops import compiling
from trainers.workload import Shard


class EarlyCompilers:
    """The compilers that this process has started; `helpers` is None if it started no helper processes."""

    def __init__(self, config: RunConfig, run_dir: Path, shard: Shard) -> None:
        self.helpers: parallel.Helpers | None = None
        self._starting: threading.Thread | None = None
        leads = shard.rank % config.processes_per_node() == 0  # The others load what it has compiled.
        if not (config.compiled() and leads and parallel.most_helpers()) or shard.device.type != "cuda":
            return
        keep_traces(config)
        if compile_first.was_compiled(config, shard.device):
            return
        self._starting = threading.Thread(target=start_compiler, daemon=True)
        self._starting.start()
        # With several processes DDP may wrap the modules. They then keep no traces, and helpers have nothing to do.
        if compiling.keeper and shard.world_size == 1 and config.model.workload.startswith(compile_first.OUR_OWN):
            self.helpers = parallel.Helpers(run_dir, parallel.most_helpers())

    def join(self, log: Journal | None) -> None:
        """Wait for the compiler's import. Until then this process must not import the same modules."""
        if self._starting:
            with part_of_start(log, "import"):
                self._starting.join()

    def end(self) -> None:
        """End the helpers, if there are any."""
        if self.helpers:
            self.helpers.end()


def start_compiler() -> None:
    """Import Inductor and start the processes in which it compiles; an error shows when it compiles."""
    with suppress(Exception):
        import torch._inductor.compile_fx  # noqa: F401
        from torch._inductor import async_compile

        if start_processes := getattr(async_compile, "maybe_warm_pool", None):  # older versions lack it
            start_processes()
