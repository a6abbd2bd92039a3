"""The format of an export: a zip with a manifest and its signature.

    manifest.json   `format`, `identity` (see importing.py), `made_ms`, and `files`: by name its size and SHA-256
    signature       of the manifest (tracking.record.signature)
    inductor/...    files of Inductor's folder, by their paths in it
    triton/...      files of Triton's folder

Triton keeps the files of a kernel as a group, by their paths on this machine. In the zip, a group has only their names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 1
MANIFEST, SIGNATURE = "manifest.json", "signature"
ROOTS = ("inductor", "triton")
MOST_FILES = 250_000
MOST_BYTES = 64 * 2**30  # all files together
MOST_FILE_BYTES = 4 * 2**30
MOST_MANIFEST_BYTES, MOST_SIGNATURE_BYTES = 64 * 2**20, 4096
PART = re.compile(r"[\w.+=@,-]{1,255}", re.ASCII)  # part of a path, in the characters that Inductor and Triton use
DIGEST = re.compile(r"[0-9a-f]{64}")
GROUP = "__grp__"  # prefix of Triton's groups
CHILDREN = "child_paths"
STAGING = ".timetrial-import-"  # prefix of folders of running imports
# Files that mark a graph as compiled. The code that they name must be in place before them.
INDICES = ("fxgraph", "aotautograd")


@dataclass(frozen=True)
class File:
    size: int
    sha256: str


def is_carried(path: Path) -> bool:
    """Whether an export includes a file, by its path in a compiler's folder: not locks and half-written files."""
    if not path.parts or path.parts[0] == "locks" or path.name == "lock" or path.suffix in (".lock", ".tmp"):
        return False
    return all(PART.fullmatch(part) and not part.startswith((STAGING, "tmp.", ".")) for part in path.parts)


def check_name(name: str) -> None:
    """Raise ValueError for a name that cannot be a file in a compiler's folder."""
    root, *parts = name.split("/")
    if root not in ROOTS or not parts or not is_carried(Path(*parts)) or "/".join([root, *Path(*parts).parts]) != name:
        raise ValueError(f"{name!r} is not a file of a compiler")


def is_last(name: str) -> bool:
    """Whether the file names others, which must be in place before it."""
    parts = name.split("/")
    return parts[1] in INDICES or parts[-1].startswith(GROUP)


def is_machine_code(name: str) -> bool:
    """Whether the file has code for the CPU on which it was compiled."""
    return name.endswith((".so", ".so.load_ok", ".o", ".gch", ".pch"))


def with_names(content: bytes) -> bytes:
    """A Triton group with names of its files in place of their paths. Raises ValueError for malformed content."""
    return _group({child: Path(path).name for child, path in _children(content).items()})


def with_paths(content: bytes, folder: Path) -> bytes:
    """A Triton group with paths in `folder` in place of names. Raises ValueError, also for names outside the folder."""
    children = _children(content)
    for name in children.values():
        if not PART.fullmatch(name) or name in (".", ".."):
            raise ValueError(f"a Triton group names {name!r}, which is not a file of its folder")
    return _group({child: str(folder / name) for child, name in children.items()})


def _children(content: bytes) -> Mapping[str, str]:
    try:
        group = json.loads(content)
    except (ValueError, RecursionError):
        group = None
    children = group.get(CHILDREN) if isinstance(group, dict) else None
    if not isinstance(children, dict) or not all(isinstance(path, str) for path in children.values()):
        raise ValueError("is not a Triton group")
    return children


def _group(children: Mapping[str, str]) -> bytes:
    return json.dumps({CHILDREN: dict(children)}).encode()


def parsed(manifest: Any) -> tuple[dict[str, str], dict[str, File]]:
    """Identity and files of a manifest. Raises ValueError for a malformed one, and above the limits."""
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError("another version wrote it")
    identity, listed = manifest.get("identity"), manifest.get("files")
    if not isinstance(identity, dict) or not all(isinstance(value, str) for value in identity.values()):
        raise ValueError("its identity is missing or malformed")
    if not isinstance(listed, dict) or len(listed) > MOST_FILES:
        raise ValueError(f"it lists no files, or more than {MOST_FILES}")
    files = {}
    for name, facts in listed.items():
        check_name(name)
        size, digest = facts if isinstance(facts, list) and len(facts) == 2 else (None, "")
        if type(size) is not int or not 0 <= size <= MOST_FILE_BYTES or not DIGEST.fullmatch(str(digest)):
            raise ValueError(f"{name}: its size or digest is not valid")
        files[name] = File(size, digest)
    if sum(file.size for file in files.values()) > MOST_BYTES:
        raise ValueError(f"its files have more than {MOST_BYTES} bytes")
    return identity, files
