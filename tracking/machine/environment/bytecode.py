"""Where a worker keeps the bytecode of its imports if its Python keeps none: compiling PyTorch takes seconds.

Bytecode is executed, so it lies in the user's cache, under that folder's rules.
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
    """The folder of a large package's sources, and the tag that a Python gives to its bytecode, such as cpython-311."""

    folder: Path
    tag: str

    def have_bytecode(self, environ: Mapping[str, str]) -> bool:
        """Whether bytecode is there, or a process with these variables may write it there."""
        if (self.folder / "__pycache__" / f"__init__.{self.tag}.pyc").is_file():
            return True
        return not environ.get(FORBIDDEN) and os.access(self.folder, os.W_OK)


def own_sources(package: str = "torch") -> Sources | None:
    """The package of this Python, which is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.origin:
        return None
    return Sources(Path(spec.origin).parent, str(sys.implementation.cache_tag))


def bytecode_variables(environ: Mapping[str, str], sources: Sources | None, make: bool = True) -> dict[str, str]:
    """What has a worker with these variables keep its bytecode in the cache; nothing where it is kept anyway.

    A folder of the user's own stays. `make` makes the cache's folder. Without a folder of this user's alone there is
    nothing, either.
    """
    if environ.get(PREFIX) or sources is None or sources.have_bytecode(environ):
        return {}
    try:
        folder = private_folder(BYTECODE) if make else cache() / BYTECODE
    except OSError:
        return {}
    if not is_trusted(folder):
        return {}
    return {PREFIX: str(folder), FORBIDDEN: ""}  # Python takes an empty variable for one that is not set.
