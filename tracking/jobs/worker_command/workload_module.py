"""Checks that a worker will find its workload, without importing it: a workload imports torch."""

from __future__ import annotations

import re
from importlib.machinery import ModuleSpec

from conf.schema import ConfigError, RunConfig
from tracking.base import installation
from tracking.jobs.worker_command.constructor import spec_of
from tracking.jobs.worker_command.hparam_checks import check_dataset_options, check_hparams
from tracking.machine.environment import available_bytes
from tracking.request.gpu_memory import WORKLOAD_PREFIX, estimated_memory

# A module with one of these makes names while it is imported, so only the worker can tell.
MAKES_NAMES = re.compile(
    r"import\s*\*|__getattr__|__path__|declare_namespace|globals\(|locals\(|vars\(|setattr\(|exec\(|sys\.modules|meta_path"
)


def check_workload(config: RunConfig) -> None:
    """Raise ConfigError if the workload's module is missing or lacks its name, refuses an option, or cannot fit here.

    Other stacks have their own packages, and cluster nodes their own folders: there only the worker can tell.
    """
    if config.is_program():
        return
    elsewhere = config.cluster.kind != "none" or config.stack.kind != "native" or "PYTHONPATH" in config.stack.env
    module, _, name = config.model.workload.partition(":")
    is_ours = module.startswith("trainers.")
    module = installation.module(module) if is_ours else module
    if not elsewhere and (why := missing(module, name)):
        raise ConfigError(
            f"model.workload={config.model.workload}: {why}. Next: give package.module:NAME of a timetrial.Workload"
            " that this Python can import (PYTHONPATH must hold its folder)"
        )
    if is_ours or not elsewhere:  # Our own source is the same everywhere.
        check_hparams(config, module, name)
        check_dataset_options(config, module, name, has_files_here=is_ours and not elsewhere)
    check_host_memory(config)


def missing(module: str, name: str) -> str:
    """The certainly missing module or name, in words; empty if none is certainly missing."""
    parts = module.split(".")
    spec: ModuleSpec | None = None
    source = sources = ""  # of this part; of all parts so far
    for end in range(1, len(parts) + 1):
        above, part = spec, ".".join(parts[:end])
        try:
            spec = spec_of(part, above)
            if spec is None:
                return "" if MAKES_NAMES.search(sources) else f"module {part} does not exist"
            source = spec.loader.get_source(part) if spec.loader else ""  # type: ignore[attr-defined]
        except Exception:  # Anybody may add finders and loaders.
            return ""
        if source is None:  # a compiled module
            return ""
        sources += source
    if MAKES_NAMES.search(source) or re.search(rf"\b{re.escape(name)}\b", source):
        return ""
    return f"{module} has no {name}"


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
