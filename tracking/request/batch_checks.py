"""Makes a device's batch of that of all devices, and refuses one that cannot be shared."""

from __future__ import annotations

from conf.schema import ConfigError, RunConfig


def resolve_batch(config: RunConfig) -> int | None:
    """A device's batch, where that of all devices is given; groups and sequences stay whole. Raises ConfigError."""
    key, given, devices = "global_batch_size", config.global_batch_size, config.world_size()
    if given is None:
        if config.batch_size is not None or not config.model.global_batch:
            return config.batch_size
        key, given = "model.batch_size", config.model.batch_size
    elif config.batch_size is not None:
        raise ConfigError(f"global_batch_size={given} batch_size={config.batch_size}: give one of them")
    group, sequence = config.model.group_size, length_of_sequences(config)
    if given < 1 or given % (devices * group * sequence):
        of = f"{devices} devices" + (f" x groups of {group}" if group > 1 else "")
        of += f" x sequences of {sequence}" if sequence > 1 else ""
        near = devices * below(given // devices, group * sequence, config)
        raise ConfigError(f"{key}={given}: is no multiple of {of}; give one, such as {near}")
    return given // devices


def length_of_sequences(config: RunConfig) -> int:
    """What a batch of tokens of a `global_batch` model is a multiple of, where the request says it."""
    return max(1, config.dataset.sequence_length or 1) if config.model.global_batch else 1


def below(size: int, whole: int, config: RunConfig) -> int:
    """The largest device's batch up to `size`, but for a first one, that `whole`s, and micro-batches, make up."""
    micro = config.model.hparams.get("micro_batch_size")
    if config.model.global_batch and isinstance(micro, int) and 0 < micro <= size and micro % whole == 0:
        whole = micro
    return max(1, size // whole) * whole


def check_whose_batch(config: RunConfig) -> None:
    """A `global_batch` model has one of all devices, which a device's would multiply by their number."""
    if config.model.global_batch and config.batch_size is not None:
        raise ConfigError(
            f"batch_size={config.batch_size}: is a device's, and model={config.model.name} has a batch of all devices"
            f" together; give global_batch_size={config.batch_size}"
        )


def check_groups(batch_size: int, group_size: int) -> None:
    if group_size < 1:
        raise ConfigError(f"model.group_size={group_size}: must be above 0")
    if batch_size % group_size:
        near = max(group_size, batch_size - batch_size % group_size)
        raise ConfigError(
            f"batch_size={batch_size}: this model's samples come in groups of {group_size} (model.group_size), none of"
            f" which is parted; give a multiple of {group_size}, such as batch_size={near}"
        )
