"""Makes the dataset and the module of a run."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytorch_lightning as pl
import torch

from conf.dataset_options import DatasetConfig
from conf.schema import ConfigError, RunConfig
from tracking.record import Journal, part_of_start
from trainers.loop import precision
from trainers.workload import Data, Shard, TrialModule, Workload, bind, viewed

if TYPE_CHECKING:
    from trainers.loop.early_compilers import EarlyCompilers


def build(
    workload: Workload, config: RunConfig, shard: Shard, log: Journal | None, early: EarlyCompilers | None = None
) -> tuple[TrialModule, Data]:
    """Make the module, with equal weights on all processes, and the data, with images cut as the module wants them."""
    precision.apply(config.precision)
    pl.seed_everything(config.seed, verbose=False)
    with part_of_start(log, "index"):
        data = make_data(workload, config.dataset)
    if early:
        early.join(log)
    with part_of_start(log, "model"):
        with _first_device(workload, config, shard):
            module = make_module(workload, data, config)
        if config.precision.name == "fp8":
            module.use_fp8()
        if config.sharded():
            from trainers.loop import fsdp  # This import is slow, and older versions of PyTorch lack fully_shard.

            fsdp.shard_module(module, shard, config.precision.name)
        module.check_batch(config.device_batch_size())
        module.check_targets(config.targets())
        data = viewed(data, module)
    # From here on each process draws its own random numbers, for augmentation and dropout.
    pl.seed_everything((config.seed + (shard.rank << 20)) % 2**32, verbose=False)
    return module, data


def _first_device(workload: Workload, config: RunConfig, shard: Shard) -> torch.device | nullcontext[None]:
    """Return the context in which the module is made. A sharded one gets its weights later, part by part."""
    if config.sharded():
        return torch.device("meta")
    return shard.device if getattr(workload.module, "made_on_device", False) else nullcontext()


def make_data(workload: Workload, config: DatasetConfig) -> Data:
    """Return the dataset with its index read.

    Raises ConfigError for a name that the workload does not have, and for a file that this user may not open.
    """
    if config.name not in workload.data:
        raise ConfigError(
            f"dataset={config.name}: this workload cannot train on it. Allowed: {', '.join(sorted(workload.data))}"
        )
    options = {key: value for key, value in vars(config).items() if key != "name" and value is not None}
    try:
        data: Data = bind(workload.data[config.name], "dataset", **options)
    except PermissionError as error:
        raise ConfigError(
            f"dataset={config.name}: {error.filename} cannot be opened ({error.strerror}). Next: get access to it, or"
            " give another dataset.path"
        ) from error
    return data


def make_module(workload: Workload, data: Data, config: RunConfig) -> TrialModule:
    """Return the module with its first weights. Raises ConfigError for an unknown or missing hyperparameter."""
    if config.sharded() and getattr(workload.module, "sharded_parts", None) is TrialModule.sharded_parts:
        # A sharded module is made on the meta device. A constructor not written for that may fail there: refuse first.
        name = workload.module.__name__
        raise ConfigError(f"strategy=fsdp: {name} has no sharded_parts(). Next: give strategy=ddp")
    module: TrialModule = bind(
        workload.module,
        "model.hparams",
        data=data,
        learning_rate=config.learning_rate(),
        weight_decay=config.model.optimizer.weight_decay,
        **config.model.hparams,
    )
    return module
