"""Keeps a result with the digests of the sources that it follows from, so that an edit makes it invalid."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

OURS = Path(__file__).parents[2]  # the package of all workloads, operators and loops
IMPORTED = time.time()  # By then Python has read the sources.


def with_sources(result: bytes, modules: Iterable[str] = ()) -> bytes | None:
    """Return a line of digests and then the result. The digests are of this project's imported modules and `modules`.

    Return None if one of them may have been edited after this process had read it.
    """
    sources = _sources(set(modules))
    return None if _edited_since(IMPORTED, sources) else json.dumps(sources).encode() + b"\n" + result


def unchanged(kept: bytes | None) -> bytes | None:
    """Return the kept result without its digests, or None if a source was edited since."""
    sources, _, result = (kept or b"").partition(b"\n")
    with suppress(ValueError):
        if all(_digest(module) == digest for module, digest in json.loads(sources).items()):
            return result
    return None


def _sources(traced: set[str]) -> dict[str, str]:
    """Return the digest of each imported module of this project and of each that PyTorch traced through.

    A Triton kernel gets into a trace without being traced. The program itself differs between a worker and a helper.
    """
    names = sys.modules.keys() - {"__main__", "__mp_main__"}
    ours = {name for name in names if _file(name).startswith(f"{OURS}/")}
    return {name: _digest(name) for name in sorted(ours | traced)}


def _edited_since(began: float, sources: Iterable[str]) -> bool:
    """Return whether a module may have been edited after this process had read it."""
    files = [Path(file) for name in sources if (file := _file(name))]
    return any(file.exists() and file.stat().st_mtime > began for file in files)


def _file(module: str) -> str:
    """Return the path of a module's source, or "" without one. The module is not imported."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None) or ""
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(module)
        return spec.origin or "" if spec else ""
    return ""


def _digest(module: str) -> str:
    """Return the digest of a module's source, or "" without one."""
    try:
        return hashlib.sha256(Path(_file(module)).read_bytes()).hexdigest()
    except OSError:
        return ""
