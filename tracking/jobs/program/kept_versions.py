"""Keeps the versions and libraries that an import of PyTorch finds: importing it takes seconds of a program's start.

The record is valid until something that decides them changes: the Python and its packages, the dynamic loader's
variables and list of libraries, or the loaded libraries themselves.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tracking.machine.environment import cache, is_trusted, private_folder
from tracking.record import documents

FOLDER = "versions"  # in the cache
KEYS = ("torch", "cuda", "cudnn", "nccl", "libraries", "loaded")  # of a fingerprint's software
DECIDING = ("LD_", "PYTHON", "TORCH_")  # prefixes of variables that decide what an import loads
LOADERS_LIST = "/etc/ld.so.cache"


def read(folder: str) -> dict[str, Any]:
    """Return KEYS and their values for the PyTorch in `folder`; {} if they are not kept or something has changed."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        path = _file(folder)
        kept = documents.read_json(path)
        if kept["seen"] == _seen(folder) and kept["files"] == _states(kept["files"]) and is_trusted(path):
            return dict(kept["software"])
    return {}


def write(folder: str, software: Mapping[str, Any]) -> None:
    """Keep KEYS of `software`, if the cache can be written."""
    kept = {key: software[key] for key in KEYS if key in software}
    with suppress(OSError):
        private_folder(FOLDER)
        files = _states(software.get("libraries", {}).values())
        documents.write_json(_file(folder), {"seen": _seen(folder), "files": files, "software": kept})


def torch_folder() -> str | None:
    """Return the folder from which PyTorch would be imported; None without PyTorch."""
    with suppress(ImportError, ValueError):
        if (spec := find_spec("torch")) and spec.origin:
            return str(Path(spec.origin).parent)
    return None


def _file(folder: str) -> Path:
    return cache() / FOLDER / f"{hashlib.sha256(json.dumps([sys.executable, folder]).encode()).hexdigest()[:16]}.json"


def _seen(folder: str) -> dict[str, Any]:
    """Return what decides which libraries an import of PyTorch loads, without importing it."""
    # A folder's time changes with each installation. Other folders of sys.path may change with each run.
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    searched = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path]
    of_torch = [f"{folder}{name}" for name in ("", "/version.py", "/lib", "/..")]
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith(DECIDING)}
    return {
        "python": sys.version,
        "path": sys.path,
        "variables": variables,
        "states": _states([*packages, *searched, *of_torch, LOADERS_LIST]),
    }


def _states(paths: Iterable[str]) -> dict[str, list[int] | None]:
    """Return the size and the time of the last change of each file or folder; None for a missing one."""
    states: dict[str, list[int] | None] = {}
    for path in paths:
        states[path] = None
        with suppress(OSError):
            facts = Path(path).stat()
            states[path] = [facts.st_size, facts.st_mtime_ns]
    return states
