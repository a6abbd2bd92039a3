"""Makes the dataset and the module that a configuration names."""

from __future__ import annotations

from conf.dataset_options import DatasetConfig
from conf.schema import ConfigError, RunConfig
from trainers.workload import Data, TrialModule, Workload, bind


def make_data(workload: Workload, config: DatasetConfig) -> Data:
    """Return the dataset with its index read. Raises ConfigError for a name that the workload does not have."""
    if config.name not in workload.data:
        raise ConfigError(
            f"dataset={config.name}: this workload cannot train on it. Allowed: {', '.join(sorted(workload.data))}"
        )
    options = {key: value for key, value in vars(config).items() if key != "name" and value is not None}
    data: Data = bind(workload.data[config.name], "dataset", **options)
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
