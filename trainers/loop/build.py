"""What a configuration names, made: the dataset and the module."""

from __future__ import annotations

from conf.dataset_options import DatasetConfig
from conf.schema import ConfigError, RunConfig
from trainers.workload import Data, TrialModule, Workload, bind


def make_data(workload: Workload, config: DatasetConfig) -> Data:
    """The dataset, whose index is read. Raises ConfigError where the workload has none of this name."""
    if config.name not in workload.data:
        raise ConfigError(f"dataset={config.name}: this workload has {', '.join(sorted(workload.data))}")
    given = {key: value for key, value in vars(config).items() if key != "name" and value is not None}
    data: Data = bind(workload.data[config.name], "dataset", **given)
    return data


def make_module(workload: Workload, data: Data, config: RunConfig) -> TrialModule:
    """The module with its first weights. Raises ConfigError for a hyperparameter that it does not take, or lacks."""
    if config.sharded() and getattr(workload.module, "sharded_parts", None) is TrialModule.sharded_parts:
        # A sharded module is made without values. One without parts may need them, so it is refused before.
        name = workload.module.__name__
        raise ConfigError(f"strategy=fsdp: {name} has no sharded_parts(); give strategy=ddp")
    module: TrialModule = bind(
        workload.module,
        "model.hparams",
        data=data,
        learning_rate=config.learning_rate(),
        weight_decay=config.model.optimizer.weight_decay,
        **config.model.hparams,
    )
    return module
