"""A run's files as they are: the rows of its journal, and the content of its JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def parsed(line: str) -> dict[str, Any] | None:
    """A row of a journal; None for a line that was cut off."""
    try:
        row: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return {**row, "values": row.get("values") or {}}


def content(path: Path) -> dict[str, Any]:
    """The content of a JSON file; empty without the file."""
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return loaded
