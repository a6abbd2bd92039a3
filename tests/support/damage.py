"""What strangers and machines that went down leave in a run's folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path


def change(name: str, **fields: object) -> Callable[[Path], None]:
    """Puts fields into a JSON file of the folder."""

    def put(folder: Path) -> None:
        path = folder / name
        content = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(content | fields))

    return put


def rewrite(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


# Each is found when the folder is read, and named.
DAMAGE = {
    "status": change("result.json", status="odd"),
    "a list": rewrite("result.json", "[]"),
    "deep": rewrite("result.json", "[" * 100_000),
    "failure": change("result.json", failure={"kind": 1}),
    "metrics": change("result.json", metrics={"a": 10**400}),
    "parent itself": change("run.json", parent="."),
    "parent elsewhere": change("run.json", parent="../../elsewhere"),
    "created": change("run.json", created_ms=10**30),
    "kind": change("run.json", kind="odd"),
    "uid": change("run.json", uid="' or '1' = '1"),
    "missing": rewrite("run.json", '{"name": "a"}'),
}
