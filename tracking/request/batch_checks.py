"""Makes a device's batch of that of all devices, and refuses one that cannot be shared."""

from __future__ import annotations

from dataclasses import replace

from conf.schema import ConfigError, RunConfig


def with_batch(config: RunConfig) -> RunConfig:
    """The config with a device's batch alone. What gave the batch is left out, so that a resumed run can be checked.

    Raises ConfigError.
    """
    study = replace(config.study, batch_size={}, batch_factor=None)
    return replace(config, batch_size=resolve_batch(config), global_batch_size=None, study=study)


def resolve_batch(config: RunConfig) -> int | None:
    """A device's batch, where that of all devices is given; groups and sequences stay whole. Raises ConfigError."""
    key, given, devices = "global_batch_size", config.global_batch_size, config.world_size()
    of_study = batch_of_study(config)
    if given is None:
        if config.batch_size is not None or not config.model.global_batch:
            return config.batch_size if of_study is None else of_study
        key, given = "model.batch_size", config.model.batch_size if of_study is None else of_study
    elif config.batch_size is not None:
        raise ConfigError(f"global_batch_size={given} batch_size={config.batch_size}: give one of them")
    group, sequence = config.model.group_size, length_of_sequences(config)
    if given < 1 or given % (devices * group * sequence):
        of = f"{devices} devices" + (f" x groups of {group}" if group > 1 else "")
        of += f" x sequences of {sequence}" if sequence > 1 else ""
        near = devices * below(given // devices, group * sequence, config)
        raise ConfigError(f"{key}={given}: is no multiple of {of}; give one, such as {near}")
    return given // devices


def batch_of_study(config: RunConfig) -> int | None:
    """The batch that a study's table or factor gives; None where it has neither of this model. Raises ConfigError.

    It is a device's, or that of all devices where the model's own is.
    """
    study, devices = config.study, config.world_size()
    if not study.batch_size and study.batch_factor is None:
        return None
    if study.batch_size and study.batch_factor is not None:
        raise ConfigError("study.batch_size and study.batch_factor: each gives a batch; leave one of them out")
    if config.batch_size is not None or config.global_batch_size is not None:
        raise ConfigError("study.batch_size or study.batch_factor beside batch_size or global_batch_size: give one")
    if study.batch_factor is not None:
        size, group = study.batch_factor * config.model.batch_size, config.model.group_size
        if size < 1:
            raise ConfigError(
                f"study.batch_factor={study.batch_factor:g}: leaves no sample of {config.model.batch_size}"
            )
        return below(int(size), group * length_of_sequences(config), config)
    by_model = any(isinstance(table, dict) for table in study.batch_size.values())
    table = study.batch_size.get(config.model.name, {}) if by_model else study.batch_size
    if not table:
        return None
    own = {str(number): batch for number, batch in table.items()}.get(str(devices))
    if not isinstance(own, int) or isinstance(own, bool) or own < 1:
        there, who = ", ".join(map(str, table)), f"model={config.model.name}"
        raise ConfigError(
            f"study.batch_size: has no batch of {who} on {devices} devices, only on {there}; add it, or leave these"
            " devices out"
        )
    return own


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
