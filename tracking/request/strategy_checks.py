"""Refuses a strategy that does not fit the other options of a run, or the GPUs' memory.

Says where fp8 may be slower than bf16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from conf.schema import ConfigError, RunConfig
from tracking.request.gpu_memory import Memory, estimated_memory, is_known, is_language_model, sequence_length
from tracking.request.node_options import VisibleGpu

STRATEGIES = ("ddp", "fsdp")
MAX_GPUS = 4096
USABLE_SHARE = 0.95  # usable share of a GPU's memory; CUDA and the allocator's fragmentation take the rest
CHECKPOINTING = "activation_checkpointing"
# The least widths of layers that were measured to be faster in fp8: docs/results/2026-11-26-h200-x2-larger.md. Without
# a CUDA graph of the step, the host launches short kernels too slowly.
FASTER_IN_FP8, FASTER_BY_A_GRAPH = 4096, 1600


def check_strategy(config: RunConfig) -> None:
    """Raise ConfigError for an unknown strategy, and for fsdp with one process or with options it does not support."""
    if config.strategy not in STRATEGIES:
        raise ConfigError(f"strategy={config.strategy}: no such strategy. Allowed: {', '.join(STRATEGIES)}")
    if not config.sharded():
        return
    if config.world_size() == 1:
        raise ConfigError(
            "strategy=fsdp: shards a model over several processes, but this run has one. Next: give gpus=2 or more"
            " (cpu_processes=2 on a CPU), or strategy=ddp"
        )
    for option, alternative in _unsupported(config).items():
        raise ConfigError(f"{option}: strategy=fsdp does not support it. Next: give {alternative}, or strategy=ddp")


def _unsupported(config: RunConfig) -> dict[str, str]:
    """The given options that strategy=fsdp does not support, each with what to give instead."""
    options = (
        (f"precision={config.precision.name}", config.precision.name == "fp16", "precision=bf16"),
        ("log_model=true", config.log_model, "save_model=final"),
        (
            f"overlap_grad_reduce={config.overlap_grad_reduce}".lower(),
            config.overlap_grad_reduce is not None,
            "neither",
        ),
    )
    return {option: alternative for option, is_given, alternative in options if is_given}


def notes_on_fp8(configs: Sequence[RunConfig]) -> list[str]:
    """A note for each size of a language model that may be slower in fp8, unless bf16 is among the jobs, too."""
    compared = any(config.precision.name == "bf16" for config in configs)
    narrow = {
        (config.model.name, width, least): None
        for config in configs
        if config.precision.name == "fp8" and is_language_model(config) and not compared
        for least in [FASTER_BY_A_GRAPH if _by_a_graph(config) else FASTER_IN_FP8]
        if (width := config.model.hparams.get("width", least)) < least
    }
    return [
        f"precision=fp8: may be slower than bf16 for model={model} with layers {width:,} wide. It was measured to be"
        f" faster only with layers at least {least:,} wide. Next: give precision=bf16, or compare the two:"
        " -m precision=bf16,fp8"
        for model, width, least in narrow
    ]


def _by_a_graph(config: RunConfig) -> bool:
    return config.compiled() and not config.sharded() and not config.model.hparams.get(CHECKPOINTING, False)


def check_memory(config: RunConfig, gpus: Sequence[VisibleGpu]) -> None:
    """Raise ConfigError if the training does not fit on the chosen GPUs. It names what would fit."""
    usable = _usable_bytes(config, gpus)
    estimate = estimated_memory(config, config.strategy, config.world_size()) if is_known(config) and usable else None
    if usable is None or estimate is None or estimate.total <= usable:
        return
    raise ConfigError(
        f"model={config.model.name}: takes {estimate} by strategy={config.strategy}, but a GPU here has"
        f" only {usable / 1e9:,.1f} GB usable ({100 * USABLE_SHARE:g} % of its memory)."
        f" Next: {_what_fits(config, usable)}"
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
    allowed = STRATEGIES if number > 1 and not _unsupported(config) else ()
    others = [strategy for strategy in allowed if strategy != config.strategy]
    alternatives = "".join(f"; {strategy}: {estimated_memory(config, strategy, number)}" for strategy in others)
    words = f"{estimate} by strategy={config.strategy}{alternatives}"
    usable = _usable_bytes(config, gpus)
    kept = _fitting(_checkpointing(config, False), usable) if usable and config.model.hparams[CHECKPOINTING] else None
    if kept is None:
        return words
    option = f"model.hparams.{CHECKPOINTING}=false"
    return f"{words}; it fits without activation checkpointing, too ({kept.gigabytes}): {option} recomputes nothing"


def _usable_bytes(config: RunConfig, gpus: Sequence[VisibleGpu]) -> float | None:
    """The bytes that a training may take of the chosen GPU with the least memory; None if not known."""
    sizes = [size for gpu in config.chosen(gpus) if (size := getattr(gpu, "memory_bytes", None))]
    return USABLE_SHARE * min(sizes) if sizes else None


def _checkpointing(config: RunConfig, value: bool) -> RunConfig:
    return replace(config, model=replace(config.model, hparams={**config.model.hparams, CHECKPOINTING: value}))


def _fitting(config: RunConfig, usable: float) -> Memory | None:
    """The estimate; None if it does not fit."""
    estimate = estimated_memory(config, config.strategy, config.world_size())
    return estimate if estimate and estimate.total <= usable else None


def _what_fits(config: RunConfig, usable: float) -> str:
    """What to give so that the training fits, preferably on the same GPUs. Names no option that would be refused."""
    option, less = f"model.hparams.{CHECKPOINTING}=true", _checkpointing(config, True)
    unsupported = _unsupported(config)
    ways = {option: less}
    if config.world_size() > 1 and not unsupported:
        shared = replace(config, strategy="fsdp")
        ways = {"strategy=fsdp": shared, **ways, f"strategy=fsdp {option}": replace(less, strategy="fsdp")}
    for words, way in ways.items():  # One way is the run's own, which does not fit.
        if estimate := _fitting(way, usable):
            return f"give {words}, which takes {estimate.gigabytes}" + (" and is slower" if option in words else "")
    smaller = "give a smaller model.hparams.micro_batch_size, or shorter sequences"
    if unsupported:
        return f"{smaller}, or leave out {' and '.join(unsupported)}: strategy=fsdp, which shards, does not support it"
    return _on_more_gpus(config, less, usable) or f"{smaller}; more GPUs are not enough"


def _on_more_gpus(config: RunConfig, less: RunConfig, usable: float) -> str:
    """The fewest GPUs that a sharded training fits on, with and without checkpointing; empty if it never fits."""
    for tokens in (None, sequence_length(config)):
        plain, number = (_fewest_gpus(way, usable, tokens) for way in (config, less))
        if not number:
            continue
        more = f" with model.hparams.{CHECKPOINTING}=true" if number != plain else ""
        others = f", or without it on {plain}" if more and plain else ""
        batch = f", with global_batch_size={number * tokens}" if tokens else ""
        return f"give strategy=fsdp{more} on {number} such GPUs, the fewest that it fits on{batch}{others}"
    return ""


def _fewest_gpus(config: RunConfig, usable: float, tokens: int | None) -> int | None:
    """The fewest GPUs that a sharded training fits on, with `tokens` on each; None if it never fits.

    Without `tokens` the GPUs share the batch's sequences, so the number of GPUs divides the number of sequences.
    """
    sequences = config.samples_per_step() // sequence_length(config)
    for number in range(2, MAX_GPUS + 1):
        estimate = estimated_memory(config, "fsdp", number, tokens) if tokens or sequences % number == 0 else None
        if estimate is not None and estimate.total <= usable:
            return number
    return None
