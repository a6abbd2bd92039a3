"""Refuses a language model that this machine's memory cannot hold, in a run on CPUs."""

from __future__ import annotations

from conf.schema import ConfigError, RunConfig
from tracking.machine.environment import available_bytes
from tracking.request.gpu_memory import WORKLOAD_PREFIX, estimated_memory


def check_host_memory(config: RunConfig) -> None:
    """Raise ConfigError if weights, gradients and optimizer state exceed the free memory.

    Linux would kill the run, or another process, while the model is made. Activations are left out: on CPUs their size
    is not measured.
    """
    if not config.model.workload.startswith(WORKLOAD_PREFIX) or config.on_gpu() or config.cluster.kind != "none":
        return
    estimate = estimated_memory(config, config.strategy, config.world_size())
    if estimate is None:
        return
    needed = config.cpu_processes * (estimate.parameters + estimate.gradients + estimate.optimizer)
    if needed > (free := available_bytes()):
        raise ConfigError(
            f"model={config.model.name}: its weights, gradients and optimizer state take {needed / 1e9:,.1f} GB, and"
            f" this machine has {free / 1e9:,.1f} GB free. Next: give a smaller size or recipe, or gpus="
        )
