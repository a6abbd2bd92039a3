"""Checks that a worker will find its workload, without importing it: a workload imports torch."""

from __future__ import annotations

import re
import sys
from importlib.machinery import ModuleSpec

from conf.schema import ConfigError, RunConfig
from tracking.base import installation

# With these, a module or package makes names while it is imported, so only the worker can tell.
MAKES = re.compile(
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
            f"model.workload={config.model.workload}: {why}; give package.module:NAME of a timetrial.Workload"
            " that this Python can import (PYTHONPATH must hold its folder)"
        )


def missing(module: str, name: str) -> str:
    """A sentence on what is certainly missing; empty if all is there or it cannot be known."""
    parts = module.split(".")
    spec: ModuleSpec | None = None
    source = sources = ""  # of the part, and of all up to it
    for end in range(1, len(parts) + 1):
        above, part = spec, ".".join(parts[:end])
        try:
            spec = spec_of(part, above)
            if spec is None:
                return "" if MAKES.search(sources) else f"there is no module {part}"
            source = spec.loader.get_source(part) if spec.loader else ""  # type: ignore[attr-defined]
        except Exception:  # Finders and loaders are anybody's.
            return ""
        if source is None:  # It is compiled.
            return ""
        sources += source
    if MAKES.search(source) or re.search(rf"\b{re.escape(name)}\b", source):
        return ""
    return f"{module} has no {name}"


def spec_of(module: str, above: ModuleSpec | None) -> ModuleSpec | None:
    """Where a module is, in the package `above` it if it has one; `importlib.util.find_spec` would import that."""
    folders = above.submodule_search_locations if above else None
    if above and folders is None:
        return None
    specs = (finder.find_spec(module, folders) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)
