"""Counts the samples of a dataset, and checks that an epoch fills a global batch."""

from __future__ import annotations

from conf.schema import ConfigError, RunConfig
from trainers.data.selfplay import SelfPlayData
from trainers.workload import Data, Grouped, InTokens, Shard


def checked_train_samples(data: Data, config: RunConfig, shard: Shard) -> int:
    """Return the number of samples trained in an epoch. Raises ConfigError if the global batch is larger.

    Part of such a batch would be padding, and warming up on a very large one takes minutes.
    """
    if isinstance(data, InTokens):
        return _checked_tokens(data, config)
    # A loader knows its length without reading data. With one process and one group a batch, it counts groups.
    group = group_size(data)
    num_samples = len(data.train_loader(group, config.seed, Shard(0, 1, shard.device))) * group
    if config.samples_per_step() <= num_samples:
        return num_samples
    max_batch = num_samples // shard.world_size // group * group
    next_step = f"give up to batch_size={max_batch}" if max_batch else f"train on up to {num_samples // group} devices"
    devices = f" on each of {shard.world_size} devices" if shard.world_size > 1 else ""
    raise ConfigError(
        f"batch_size={config.device_batch_size()}{devices}: is larger than the training set of dataset="
        f"{config.dataset.name}, which has {num_samples:,} samples. Next: {next_step}"
    )


def _checked_tokens(data: InTokens, config: RunConfig) -> int:
    if config.samples_per_step() > data.num_train_tokens:
        raise ConfigError(
            f"batch_size={config.device_batch_size()} on each of {config.world_size()} devices: is in tokens, and"
            f" larger than the training set of dataset={config.dataset.name}, which has {data.num_train_tokens:,}."
            " Next: give a smaller batch_size"
        )
    # Tokens after the last full global batch of an epoch are not trained on.
    return (
        data.num_train // config.samples_per_step() * config.samples_per_step()
        if samples_are_tokens(data)
        else data.num_train
    )


def num_eval_samples(data: Data, shard: Shard) -> int:
    """Return the number of samples in an evaluation; 0 without data to evaluate on."""
    if isinstance(data, InTokens | SelfPlayData):
        return data.num_eval
    loader = data.eval_loader(1, Shard(0, 1, shard.device))
    return 0 if loader is None else len(loader)


def samples_are_tokens(data: InTokens) -> bool:
    """Return whether a sample is a token: then each step trains exactly a global batch. Else it is a sentence."""
    return data.num_train == data.num_train_tokens


def group_size(data: Data) -> int:
    """Return how many training samples always stay in one batch."""
    return data.group_size if isinstance(data, Grouped) else 1
