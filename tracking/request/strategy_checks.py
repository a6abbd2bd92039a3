"""Refuses a strategy that cannot hold what a run asks for."""

from __future__ import annotations

from conf.schema import ConfigError, RunConfig

STRATEGIES = ("ddp", "fsdp")


def check_strategy(config: RunConfig) -> None:
    """Raise ConfigError for a strategy that there is not, that has nothing to shard over, or is given what it lacks."""
    if config.strategy not in STRATEGIES:
        raise ConfigError(f"strategy={config.strategy}: allowed: {', '.join(STRATEGIES)}")
    if not config.sharded():
        return
    if config.world_size() == 1:
        raise ConfigError(
            "strategy=fsdp: shards a model over several processes, and this run has one; give gpus=2 or more"
            " (cpu_processes=2 on a CPU), or strategy=ddp"
        )
    unfit = {
        f"precision={config.precision.name}": (config.precision.name == "fp16", "precision=bf16"),
        "log_model=true": (config.log_model, "save_model=final"),
        f"overlap_grad_reduce={config.overlap_grad_reduce}": (config.overlap_grad_reduce is not None, "neither"),
    }
    for given, (wrong, instead) in unfit.items():
        if wrong:
            raise ConfigError(f"{given}: strategy=fsdp does not take it; give {instead}, or strategy=ddp")
