"""Compiles parts of a run's step beside the run's process.

trainers/loop/warmup/parallel.py starts it, with the run's folder, the descriptors of two pipes, and the id of the run's
process. It imports at once. It builds the run's module only for a part to compile, when the data are complete.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tracking.record import run_folder
from trainers.loop.worker.agent import import_training
from trainers.loop.worker.fork_server import import_compiler
from trainers.loop.worker.signal_deaths import die_of_signals, die_with

if TYPE_CHECKING:
    from trainers.loop.warmup.parallel import Part


def compile_beside(run_dir: Path, waiting: int, taken: int) -> None:
    """Compile the parts that no other process takes."""
    from trainers.loop.warmup import kept_traces, parallel

    parts: dict[int, parallel.Part] = {}
    for number in parallel.taken_numbers(waiting, taken):
        parts = parts or build_parts(run_dir)
        with kept_traces.only_kept():
            parts[number]()


def build_parts(run_dir: Path) -> dict[int, Part]:
    """Build the run's module and data, and return the parts of its step.

    The helper is in no process group and makes no optimizer: neither changes what is compiled.
    """
    import pytorch_lightning as pl
    import torch
    from pytorch_lightning.plugins.environments import LightningEnvironment

    from trainers.loop.build import build
    from trainers.loop.warmup import captures, evaluating, keep_traces, parallel
    from trainers.workload import Batch, Shard, load_workload

    config = run_folder.read_config(run_dir)
    device = torch.device("cuda", 0) if config.on_gpu() else torch.device("cpu")
    module, data = build(load_workload(config), config, Shard(0, 1, device), None)
    module.to(device)
    keep_traces(config)
    module.captured = captures(config, module, alone=True)  # Modules in DDP's wrapper have no helpers.
    module.compile_hot_path()
    trainer = pl.Trainer(
        accelerator="gpu" if config.on_gpu() else "cpu",
        devices=1,
        precision=config.precision.trainer,  # type: ignore[arg-type]
        plugins=[LightningEnvironment()],  # The environment's variables describe the run's process group.
        barebones=True,
    )

    def train(batch: Batch) -> None:
        with trainer.precision_plugin.train_step_context():
            module.training_step(batch, 0)

    def evaluate(batch: Batch) -> None:
        with evaluating(module), torch.no_grad(), trainer.precision_plugin.val_step_context():
            module.validation_step(batch, 0)

    batches = data.example_batches(config.device_batch_size(), device)
    return parallel.parts(batches, train, evaluate)


def main(run_dir: Path, waiting: int, taken: int, parent: int) -> None:
    die_with(parent)
    die_of_signals()
    try:
        import_training(None)
        import_compiler()
        compile_beside(run_dir, waiting, taken)
    except Exception as error:
        words = "a helper process could not compile; the run compiles this part itself: %s: %s"
        logging.getLogger(__name__).info(words, type(error).__name__, error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # The compiler's own processes end with this one.


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
