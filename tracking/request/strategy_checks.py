"""Refuses a strategy that does not fit the other options of a run."""

from __future__ import annotations

from conf.schema import ConfigError, RunConfig

STRATEGIES = ("ddp", "fsdp")


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
