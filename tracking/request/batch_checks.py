"""Computes the batch size of each device from the global batch size, a study, or a recipe's table by number of GPUs.

Refuses a batch size that cannot be divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.request.gpu_memory import is_language_model, sequence_length

KINDS: dict[str, tuple[Any, str]] = {
    "batch_size": (int, "a whole number above 0"),
    "lr": (int | float, "a number above 0"),
}
NO_EFFECT_ON_RATE = (
    "model.optimizer.weight_decay"  # the only option of the optimizer that does not affect the learning rate
)


def with_batch(config: RunConfig) -> RunConfig:
    """The config with the batch size of each device in `batch_size`.

    The options that gave it are removed, so that a resumed run passes the checks again. Raises ConfigError.
    """
    study = replace(config.study, batch_size={}, batch_factor=None)
    return replace(config, batch_size=resolve_batch(config), global_batch_size=None, study=study)


def resolve_batch(config: RunConfig) -> int | None:
    """The batch size of each device. A global batch size is divided without cutting groups. Raises ConfigError."""
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

    It is the size on each device; for a `global_batch` model, the size on all devices together.
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
    """The batch size has to be a multiple of this: the sequence length of a `global_batch` model, else 1."""
    return max(1, config.dataset.sequence_length or 1) if config.model.global_batch else 1


def largest_multiple(size: int, factor: int, config: RunConfig) -> int:
    """The largest multiple of `factor` (and of the micro-batch) up to `size`; at least `factor`."""
    micro = config.model.hparams.get("micro_batch_size")
    if config.model.global_batch and isinstance(micro, int) and 0 < micro <= size and micro % factor == 0:
        factor = micro
    return max(1, size // factor) * factor


def check_device_batch(config: RunConfig) -> None:
    """Raise ConfigError for batch_size= with a `global_batch` model, which takes global_batch_size= instead."""
    if config.model.global_batch and config.batch_size is not None:
        raise ConfigError(
            f"batch_size={config.batch_size}: is the size on one device, but model={config.model.name} has one"
            f" for all devices together. Next: give global_batch_size={config.batch_size}"
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


def check_tokens(config: RunConfig) -> None:
    """Raise ConfigError if a language model's sequences or micro-batches do not divide a device's batch."""
    micro = config.model.hparams.get("micro_batch_size")
    if is_language_model(config) and isinstance(micro, int) and micro > 0:  # The worker refuses other values.
        check_micro_batch(micro, config.device_batch_size(), sequence_length(config))


def check_micro_batch(micro_batch_size: int, batch_size: int, length: int) -> None:
    """Raise ConfigError if sequences of `length` tokens or micro-batches do not divide a device's batch of tokens."""
    check_sequences(batch_size, length)
    micro = min(micro_batch_size, batch_size)
    near = largest_divisor(micro, batch_size, length) or length
    if micro_batch_size % length:
        raise ConfigError(
            f"model.hparams.micro_batch_size={micro_batch_size}: is in tokens, and not a multiple of"
            f" dataset.sequence_length={length}. Next: give a multiple, such as {near}"
        )
    if batch_size % micro:
        raise ConfigError(
            f"model.hparams.micro_batch_size={micro}: does not divide a device's batch of {batch_size} tokens."
            f" Next: give a divisor of it, such as {near}"
        )


def check_sequences(batch_size: int, length: int) -> None:
    if batch_size % length:
        near = max(length, batch_size - batch_size % length)
        raise ConfigError(
            f"batch_size={batch_size}: is in tokens, and not a multiple of dataset.sequence_length={length}. Next:"
            f" give each device a multiple, such as {near}"
        )


def largest_divisor(most: int, batch_size: int, length: int) -> int:
    """The largest micro-batch of up to `most` tokens that divides the batch and has whole sequences; 0 if none does."""
    rows = batch_size // length
    fit = range(1, min(rows, most // length) + 1)
    return length * max((number for number in fit if rows % number == 0), default=0)


def with_values_by_gpus(config: RunConfig, overrides: Sequence[str] | None) -> RunConfig:
    """The config with a row of `model.by_gpus`: the row for the largest number of GPUs that the run has.

    A row's batch size and learning rate were tuned together, on one machine. So no row is used on a CPU, on several
    nodes or in a study, nor if `overrides` give either of the two or are unknown (None). The returned config has no
    table, as if model.batch_size and model.optimizer.lr had been typed. Raises ConfigError.
    """
    table = config.model.by_gpus
    check_values_by_gpus(table)
    model = replace(config.model, by_gpus={})
    number = max((number for number in table if number <= config.num_gpus()), default=None)
    study, sizes = config.study, {config.batch_size, config.global_batch_size}
    is_study = study.name or study.batch_size or study.batch_factor is not None
    is_given = sizes != {None} or overrides is None or any(map(gives_batch_or_rate, overrides))
    if number is None or config.nodes > 1 or is_study or is_given:
        return replace(config, model=model)
    row = {"batch_size": model.batch_size, "lr": model.optimizer.lr} | table[number]
    model.batch_size, model.optimizer = row["batch_size"], replace(model.optimizer, lr=float(row["lr"]))
    return replace(config, model=model)


def gives_batch_or_rate(word: str) -> bool:
    """Whether an argument gives a batch size or a learning rate, or empties the table."""
    key, _, value = word.lstrip("+").partition("=")
    if key == "model":  # a choice, unless it is a table of options
        return value.startswith("{")
    of_rate = key.startswith("model.optimizer") and key != NO_EFFECT_ON_RATE
    return of_rate or key == "model.batch_size" or (key == "model.by_gpus" and value == "{}")


def notes_on_gpus(composed: Sequence[RunConfig], checked: Sequence[RunConfig]) -> list[str]:
    """A note for each row of `model.by_gpus` in use, found by comparing configs before and after the checks."""
    taken: dict[str, None] = {}
    for before, after in zip(composed, checked, strict=True):
        values = {
            "batch_size": (before.model.batch_size, after.model.batch_size),
            "model.optimizer.lr": (before.model.optimizer.lr, after.model.optimizer.lr),
        }
        words = " ".join(f"{key}={new:g}" for key, (old, new) in values.items() if new != old)
        if words:
            taken[f"{after.model.name} on {after.num_gpus()} GPUs: {words}, from model.by_gpus"] = None
    return list(taken)


def check_values_by_gpus(table: dict[Any, Any]) -> None:
    """Raise ConfigError for a wrong table."""
    for number, values in table.items():
        where = f"model.by_gpus.{number}"
        if type(number) is not int or number < 1:
            raise ConfigError(f"{where}: not a number of GPUs. Allowed: {{4: {{batch_size: 32, lr: 0.1}}}}")
        if not isinstance(values, dict) or not values or not KINDS.keys() >= values.keys():
            raise ConfigError(f"{where}={values}: not values for these GPUs. Allowed: batch_size, lr, or both")
        for key, value in values.items():
            kind, allowed = KINDS[key]
            if isinstance(value, bool) or not isinstance(value, kind) or value <= 0:
                raise ConfigError(f"{where}.{key}={value}: must be {allowed}")
