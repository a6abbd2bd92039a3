"""Computes a device's batch size from that of all devices, and refuses one that cannot be divided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from conf.schema import ConfigError, RunConfig

# Options that give a batch size or a learning rate. Each of the two was found with the other.
GIVEN = (
    "batch_size", "global_batch_size", "study.batch_size", "study.batch_factor", "model.batch_size",
    "model.optimizer.lr",
)  # fmt: skip


def with_values_of_devices(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """The config with the values of `model.by_devices` for its number of devices, unless `overrides` or a study do.

    The table is then empty, so a stored config is as if the values had been typed. Raises ConfigError.
    """
    table = config.model.by_devices
    check_values_of_devices(table)
    model = replace(config.model, by_devices={})
    given = {word.lstrip("+").partition("=")[0] for word in overrides}
    number = max((number for number in table if number <= config.world_size()), default=None)
    if number is None or given & set(GIVEN) or config.study.batch_size or config.study.batch_factor is not None:
        return replace(config, model=model)
    batch_size, lr = table[number].get("batch_size"), table[number].get("lr")
    optimizer = replace(model.optimizer, lr=model.optimizer.lr if lr is None else float(lr))
    return replace(config, model=replace(model, batch_size=batch_size or model.batch_size, optimizer=optimizer))


def check_values_of_devices(table: dict[Any, Any]) -> None:
    """Raise ConfigError for a wrong table of `model.by_devices`."""
    kinds: dict[str, tuple[Any, str]] = {
        "batch_size": (int, "a whole number above 0"),
        "lr": (int | float, "a number above 0"),
    }
    for number, values in table.items():
        where = f"model.by_devices.{number}"
        if type(number) is not int or number < 1:
            raise ConfigError(f"{where}: not a number of devices. Allowed: {{4: {{batch_size: 32, lr: 0.1}}}}")
        if not isinstance(values, dict) or not values or not kinds.keys() >= values.keys():
            raise ConfigError(f"{where}={values}: not values for these devices. Allowed: batch_size, lr, or both")
        for key, value in values.items():
            kind, allowed = kinds[key]
            if isinstance(value, bool) or not isinstance(value, kind) or value <= 0:
                raise ConfigError(f"{where}.{key}={value}: must be {allowed}")


def with_batch(config: RunConfig) -> RunConfig:
    """The config with a device's batch size in `batch_size`, and without the options that gave it.

    They are removed so that a resumed run passes the checks again. Raises ConfigError.
    """
    study = replace(config.study, batch_size={}, batch_factor=None)
    return replace(config, batch_size=resolve_batch(config), global_batch_size=None, study=study)


def resolve_batch(config: RunConfig) -> int | None:
    """A device's batch size, from that of all devices if given; groups and sequences stay whole. Raises ConfigError."""
    key, size, devices = "global_batch_size", config.global_batch_size, config.world_size()
    study_batch = batch_of_study(config)
    if size is None:
        if config.batch_size is not None or not config.model.global_batch:
            return config.batch_size if study_batch is None else study_batch
        key, size = "model.batch_size", config.model.batch_size if study_batch is None else study_batch
    elif config.batch_size is not None:
        raise ConfigError(
            f"global_batch_size={size}: batch_size={config.batch_size} is given too. Next: give one of them"
        )
    group, sequence = config.model.group_size, length_of_sequences(config)
    if size < 1 or size % (devices * group * sequence):
        factors = f"{devices} devices" + (f" x groups of {group}" if group > 1 else "")
        factors += f" x sequences of {sequence}" if sequence > 1 else ""
        suggestion = devices * largest_multiple(size // devices, group * sequence, config)
        raise ConfigError(f"{key}={size}: not a multiple of {factors}. Next: give one, such as {suggestion}")
    return size // devices


def batch_of_study(config: RunConfig) -> int | None:
    """The batch size from a study's table or factor; None without these. Raises ConfigError.

    It is that of a device; of a `global_batch` model, that of all devices.
    """
    study, devices = config.study, config.world_size()
    if not study.batch_size and study.batch_factor is None:
        return None
    if study.batch_size and study.batch_factor is not None:
        raise ConfigError(
            f"study.batch_factor={study.batch_factor:g}: study.batch_size is given too. Next: leave one of them out"
        )
    if config.batch_size is not None or config.global_batch_size is not None:
        raise ConfigError(
            "batch_size or global_batch_size: has no effect beside study.batch_size or study.batch_factor. Next: give"
            " one of them"
        )
    if study.batch_factor is not None:
        size, group = study.batch_factor * config.model.batch_size, config.model.group_size
        if size < 1:
            raise ConfigError(
                f"study.batch_factor={study.batch_factor:g}: times batch_size={config.model.batch_size} is below 1."
                " Next: give a larger factor"
            )
        return largest_multiple(int(size), group * length_of_sequences(config), config)
    is_by_model = any(isinstance(table, dict) for table in study.batch_size.values())
    table = study.batch_size.get(config.model.name, {}) if is_by_model else study.batch_size
    if not table:
        return None
    batch = {str(number): value for number, value in table.items()}.get(str(devices))
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
        raise ConfigError(
            f"study.batch_size: has no batch size of model={config.model.name} for {devices} devices, only for"
            f" {', '.join(map(str, table))}. Next: add it, or leave these devices out"
        )
    return batch


def length_of_sequences(config: RunConfig) -> int:
    """The sequence length that divides the batch size of a `global_batch` model; 1 for other models, or by default."""
    return max(1, config.dataset.sequence_length or 1) if config.model.global_batch else 1


def largest_multiple(size: int, factor: int, config: RunConfig) -> int:
    """The largest multiple of `factor` (and of the micro-batch) up to `size`; at least `factor`."""
    micro = config.model.hparams.get("micro_batch_size")
    if config.model.global_batch and isinstance(micro, int) and 0 < micro <= size and micro % factor == 0:
        factor = micro
    return max(1, size // factor) * factor


def check_device_batch(config: RunConfig) -> None:
    """Raise ConfigError for batch_size= of a `global_batch` model, whose batch size is that of all devices."""
    if config.model.global_batch and config.batch_size is not None:
        raise ConfigError(
            f"batch_size={config.batch_size}: is that of one device, but model={config.model.name} has a batch size of"
            f" all devices together. Next: give global_batch_size={config.batch_size}"
        )


def check_groups(batch_size: int, group_size: int) -> None:
    if group_size < 1:
        raise ConfigError(f"model.group_size={group_size}: must be above 0")
    if batch_size % group_size:
        suggestion = max(group_size, batch_size - batch_size % group_size)
        raise ConfigError(
            f"batch_size={batch_size}: not a multiple of model.group_size={group_size}, the samples that must stay"
            f" together. Next: give a multiple of {group_size}, such as batch_size={suggestion}"
        )
