"""Refuses a strategy that does not fit the other options of a run, or the GPUs' memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from conf.schema import ConfigError, RunConfig
from tracking.request.gpu_memory import Memory, estimated_memory, is_known, sequence_length
from tracking.request.node_options import VisibleGpu

STRATEGIES = ("ddp", "fsdp")
MAX_GPUS = 4096
USABLE_SHARE = 0.95  # usable share of a GPU's memory; CUDA and the allocator's fragmentation take the rest
CHECKPOINTING = "activation_checkpointing"


def check_strategy(config: RunConfig) -> None:
    """Raise ConfigError for an unknown strategy, and for fsdp with one process or with options it does not support."""
    if config.strategy not in STRATEGIES:
        raise ConfigError(f"strategy={config.strategy}: no such strategy. Allowed: {', '.join(STRATEGIES)}")
    if not config.sharded():
        return
    if config.world_size() == 1:
        raise ConfigError(
            "strategy=fsdp: shards a model over several processes, and this run has one. Next: give gpus=2 or more"
            " (cpu_processes=2 on a CPU), or strategy=ddp"
        )
    unsupported = {
        f"precision={config.precision.name}": (config.precision.name == "fp16", "precision=bf16"),
        "log_model=true": (config.log_model, "save_model=final"),
        f"overlap_grad_reduce={config.overlap_grad_reduce}": (config.overlap_grad_reduce is not None, "neither"),
    }
    for option, (is_given, alternative) in unsupported.items():
        if is_given:
            raise ConfigError(f"{option}: strategy=fsdp does not support it. Next: give {alternative}, or strategy=ddp")


def check_memory(config: RunConfig, gpus: Sequence[VisibleGpu]) -> None:
    """Raise ConfigError if the training does not fit on the chosen GPUs. It names what would fit."""
    memory = _smallest(config, gpus)
    estimate = estimated_memory(config, config.strategy, config.world_size()) if is_known(config) and memory else None
    if memory is None or estimate is None or estimate.total <= memory:
        return
    raise ConfigError(
        f"model={config.model.name}: takes {estimate} by strategy={config.strategy}, and a GPU here has"
        f" {memory / 1e9:,.1f} GB. Next: {_what_fits(config, memory)}"
    )


def memory_words(config: RunConfig, gpus: Sequence[VisibleGpu] = ()) -> str:
    """The estimated memory as text, for the run's strategy and the other one; empty if it is not known.

    With `gpus` it also says if the run fits on them without its activation checkpointing.
    """
    if not is_known(config):
        return ""
    number, estimate = config.world_size(), estimated_memory(config, config.strategy, config.world_size())
    if estimate is None:
        return ""
    others = [strategy for strategy in STRATEGIES if strategy != config.strategy and number > 1]
    alternatives = "".join(f"; {strategy}: {estimated_memory(config, strategy, number)}" for strategy in others)
    words = f"{estimate} by strategy={config.strategy}{alternatives}"
    memory = _smallest(config, gpus)
    kept = _fitting(config, memory, checkpointing=False) if memory and config.model.hparams[CHECKPOINTING] else None
    if kept is None:
        return words
    option = f"model.hparams.{CHECKPOINTING}=false"
    return f"{words}; it fits without activation checkpointing, too ({kept.gigabytes}): {option} recomputes nothing"


def _smallest(config: RunConfig, gpus: Sequence[VisibleGpu]) -> int | None:
    """The bytes of the chosen GPU with the least memory; None if not known."""
    return min((size for gpu in config.chosen(gpus) if (size := getattr(gpu, "memory_bytes", None))), default=None)


def _fitting(config: RunConfig, memory: float, checkpointing: bool) -> Memory | None:
    """The estimate with or without activation checkpointing; None if that does not fit."""
    model = replace(config.model, hparams={**config.model.hparams, CHECKPOINTING: checkpointing})
    estimate = estimated_memory(replace(config, model=model), config.strategy, config.world_size())
    return estimate if estimate and estimate.total <= USABLE_SHARE * memory else None


def _what_fits(config: RunConfig, memory: float) -> str:
    """What to give so that the training fits: first what needs no other GPUs."""
    sharded = estimated_memory(config, "fsdp", config.world_size()) if config.world_size() > 1 else None
    is_checkpointing = config.model.hparams[CHECKPOINTING]
    if config.strategy != "fsdp" and sharded is not None and sharded.total <= USABLE_SHARE * memory:
        return f"give strategy=fsdp, which takes {sharded.gigabytes}"
    if not is_checkpointing and (less := _fitting(config, memory, checkpointing=True)):
        return f"give model.hparams.{CHECKPOINTING}=true, which takes {less.gigabytes} and is slower"
    shared = replace(config, strategy="fsdp")
    if sharded is not None and not is_checkpointing and (less := _fitting(shared, memory, checkpointing=True)):
        return f"give strategy=fsdp model.hparams.{CHECKPOINTING}=true, which takes {less.gigabytes} and is slower"
    if number := _fewest_gpus(config, memory):
        return f"give strategy=fsdp on {number} such GPUs, the fewest that it fits on"
    if number := _fewest_gpus(config, memory, sequence_length(config)):
        batch = number * sequence_length(config)
        return f"give strategy=fsdp on {number} such GPUs, the fewest that it fits on, with global_batch_size={batch}"
    if not is_checkpointing:
        return f"give model.hparams.{CHECKPOINTING}=true; more GPUs alone are not enough"
    return "give a smaller model.hparams.micro_batch_size, or shorter sequences; more GPUs are not enough"


def _fewest_gpus(config: RunConfig, memory: float, tokens: int | None = None) -> int | None:
    """The fewest GPUs that a sharded training fits on, with `tokens` on each; None if it never fits.

    By default the GPUs share the batch's sequences, so the number of GPUs divides the number of sequences.
    """
    sequences = config.samples_per_step() // sequence_length(config)
    for number in range(2, MAX_GPUS + 1):
        estimate = estimated_memory(config, "fsdp", number, tokens) if tokens or sequences % number == 0 else None
        if estimate is not None and estimate.total <= USABLE_SHARE * memory:
            return number
    return None
