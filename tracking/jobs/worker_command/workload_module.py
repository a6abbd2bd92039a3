"""Checks that a worker will find its workload, without importing it: a workload imports torch."""

from __future__ import annotations

import re
import sys
from importlib.machinery import ModuleSpec

from conf.schema import ConfigError, RunConfig
from tracking.base import installation

# A module with one of these makes names while it is imported, so only the worker can tell.
MAKES_NAMES = re.compile(
    r"import\s*\*|__getattr__|__path__|declare_namespace|globals\(|locals\(|vars\(|setattr\(|exec\(|sys\.modules|meta_path"
)


def check_workload(config: RunConfig) -> None:
    """Raise ConfigError if the workload's module is missing or never mentions its name.

    Other stacks have their own packages, and cluster nodes their own folders: there only the worker can tell.
    """
    elsewhere = config.cluster.kind != "none" or config.stack.kind != "native" or "PYTHONPATH" in config.stack.env
    if elsewhere or config.is_program():
        return
    module, _, name = config.model.workload.partition(":")
    if why := missing(installation.module(module) if module.startswith("trainers.") else module, name):
        raise ConfigError(
            f"model.workload={config.model.workload}: {why}. Next: give package.module:NAME of a timetrial.Workload"
            " that this Python can import (PYTHONPATH must hold its folder)"
        )


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


def spec_of(module: str, above: ModuleSpec | None) -> ModuleSpec | None:
    """The module's spec, without importing the package `above` it as `importlib.util.find_spec` does."""
    folders = above.submodule_search_locations if above else None
    if above and folders is None:
        return None
    specs = (finder.find_spec(module, folders) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)
