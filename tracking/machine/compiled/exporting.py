"""Writes compiled code into one file."""

from __future__ import annotations

import hashlib
import json
import os
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from pathlib import Path

from tracking.machine.compiled import contents
from tracking.machine.compiled.contents import File
from tracking.record import documents, files, signature

LEVEL = 1  # higher levels make machine code little smaller and take longer


def export(target: Path, folders: Mapping[str, Path], identity: Mapping[str, str]) -> dict[str, File]:
    """Write `target` atomically. Returns its files by name.

    `folders` has the names of `contents.ROOTS`. Raises ValueError if nothing was compiled, if a group is torn, or if a
    file changes meanwhile, and OSError.
    """
    paths = dict(_carried(folders))
    listed = {name: _described(name, path) for name, path in paths.items()}
    if not listed:
        raise ValueError(
            f"no compiled code found in {' and '.join(map(str, folders.values()))}. Next: run a training first"
        )
    manifest = {
        "format": contents.FORMAT,
        "identity": dict(identity),
        "made_ms": time.time_ns() // 1_000_000,
        "files": {name: list(astuple(file)) for name, file in listed.items()},
    }
    with documents.replacing(target) as file:
        os.fchmod(file.fileno(), 0o600)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
            archive.writestr(contents.MANIFEST, json.dumps(manifest))
            archive.writestr(contents.SIGNATURE, signature.sign(manifest) or "")
            for name, path in paths.items():
                content = _content(name, path)
                if hashlib.sha256(content).hexdigest() != listed[name].sha256:
                    raise ValueError(f"{path}: changed during the export. Next: export when no run compiles")
                archive.writestr(name, content)
    return listed


def _carried(folders: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Name and path of each exported file. Files that name others come last."""
    carried = []
    for root, folder in folders.items():
        inside = [other for other in folders.values() if other != folder and other.is_relative_to(folder)]
        for place, inner, names in os.walk(folder):
            inner[:] = [name for name in inner if Path(place, name) not in inside]
            paths = [Path(place, name) for name in names]
            relative = [path.relative_to(folder) for path in paths if path.is_file() and not path.is_symlink()]
            carried += [f"{root}/{path.as_posix()}" for path in relative if contents.is_carried(path)]
    for name in sorted(carried, key=lambda name: (contents.is_last(name), name)):
        root, _, path = name.partition("/")
        yield name, folders[root] / path


def _described(name: str, path: Path) -> File:
    content = _content(name, path)
    return File(len(content), hashlib.sha256(content).hexdigest())


def _content(name: str, path: Path) -> bytes:
    with files.opened(path, "rb") as file:
        content: bytes = file.read()
    if not path.name.startswith(contents.GROUP):
        return content
    try:
        return contents.with_names(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}. Next: remove it; its kernel is compiled anew") from None
