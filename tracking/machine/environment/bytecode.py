"""Keeps the bytecode of a worker's imports if its Python cannot keep it, since compiling PyTorch takes seconds.

Bytecode is executed, so it is in the user's cache, under that folder's rules.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tracking.machine.environment.cache_folder import cache, is_trusted, private_folder

BYTECODE = "bytecode"  # the folder in the cache
PREFIX, FORBIDDEN = "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"


@dataclass(frozen=True)
class Sources:
    """The folder of a large package's sources, and the tag of a Python's bytecode, such as cpython-311."""

    folder: Path
    tag: str

    def have_bytecode(self, environ: Mapping[str, str]) -> bool:
        """Whether the bytecode exists, or a process with these variables can write it."""
        if (self.folder / "__pycache__" / f"__init__.{self.tag}.pyc").is_file():
            return True
        return not environ.get(FORBIDDEN) and os.access(self.folder, os.W_OK)


def own_sources(package: str = "torch") -> Sources | None:
    """The sources of a package of this Python, without importing it; None if it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.origin:
        return None
    return Sources(Path(spec.origin).parent, str(sys.implementation.cache_tag))


def bytecode_variables(environ: Mapping[str, str], sources: Sources | None, make: bool = True) -> dict[str, str]:
    """Variables that make a worker keep its bytecode in the cache; empty if it can keep it by itself.

    Also empty if the user has set a folder, or if the cache is not private. `make` creates the cache's folder.
    """
    if environ.get(PREFIX) or sources is None or sources.have_bytecode(environ):
        return {}
    try:
        folder = private_folder(BYTECODE) if make else cache() / BYTECODE
    except OSError:
        return {}
    if not is_trusted(folder):
        return {}
    return {PREFIX: str(folder), FORBIDDEN: ""}  # To Python, an empty variable is an unset one.
