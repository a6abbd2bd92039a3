"""A run's files as they are: the rows of its journal, and the content of its other files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def parsed(line: str) -> dict[str, Any] | None:
    """A row of a journal; None for a line that was cut off or is no row."""
    try:
        row: Any = json.loads(line)
    except ValueError:
        return None
    return {**row, "values": row.get("values") or {}} if isinstance(row, dict) else None


def file_content(path: Path, load: Callable[[str], Any] = json.loads) -> dict[str, Any]:
    """The content of a JSON file, or of another that `load` reads; empty without the file.

    Raises ValueError, with the file's path, if it is damaged.
    """
    if not path.exists():
        return {}
    try:
        loaded: Any = load(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: is damaged ({error}). {ADVICE}") from None
    if not isinstance(loaded, dict):
        raise ValueError(f"{path}: is damaged: it holds no table. {ADVICE}")
    return loaded


ADVICE = "Next: restore the file, or give the other runs alone"
