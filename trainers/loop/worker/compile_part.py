"""Compiles parts of a run's step beside the run's process.

trainers/loop/warmup/parallel.py starts python -m trainers.loop.worker.compile_part RUN_DIR FOLDER NUM_PARTS PARENT.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from tracking.record import run_folder
from trainers.loop.worker.agent import import_training
from trainers.loop.worker.signal_deaths import die_of_signals, die_with


def compile_beside(run_dir: Path, folder: Path, num_parts: int) -> None:
    """Build the run's module and data, and compile those of the first `num_parts` that no process has taken.

    The helper is in no process group and makes no optimizer: neither changes what is compiled.
    """
    import pytorch_lightning as pl
    import torch
    from pytorch_lightning.plugins.environments import LightningEnvironment

    from trainers.loop.train import build
    from trainers.loop.warmup import evaluating, keep_traces, parallel
    from trainers.workload import Batch, Shard, load_workload

    config = run_folder.read_config(run_dir)
    device = torch.device("cuda", 0) if config.on_gpu() else torch.device("cpu")
    module, data = build(load_workload(config), config, Shard(0, 1, device), None)
    module.to(device)
    keep_traces(config)
    module.compile_hot_path()
    trainer = pl.Trainer(
        accelerator="gpu" if config.on_gpu() else "cpu",
        devices=1,
        precision=config.precision.trainer,  # type: ignore[arg-type]
        plugins=[LightningEnvironment()],  # The variables of the environment are those of the run's process group.
        barebones=True,
    )

    def train(batch: Batch) -> None:
        with trainer.precision_plugin.train_step_context():
            loss = module.training_step(batch, 0)
        assert isinstance(loss, torch.Tensor)
        loss.backward()

    def evaluate(batch: Batch) -> None:
        with evaluating(module), torch.no_grad(), trainer.precision_plugin.val_step_context():
            module.validation_step(batch, 0)

    batches = data.example_batches(config.device_batch_size(), device)
    parallel.take_parts(folder, parallel.parts(batches, train, evaluate)[:num_parts])


def main(run_dir: Path, folder: Path, num_parts: int, parent: int) -> None:
    die_with(parent)
    die_of_signals()
    try:
        import_training(None)
        compile_beside(run_dir, folder, num_parts)
    except Exception as error:  # The run's process then compiles what is left.
        logging.getLogger(__name__).warning("compiling beside the run ended: %s: %s", type(error).__name__, error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # The compiler's own processes end with this one.


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
