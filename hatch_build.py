"""Builds the wheel, in which a clone's packages become parts of the one package `timetrial`.

Users may have their own packages `conf` or `tracking`, so the wheel must not install these names. Its sources have
`from timetrial.conf import ...` in place of `from conf import ...`. Other lines are unchanged.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "timetrial"
PARTS = ("conf", "tracking", "trainers", "launch")  # top-level names in a clone


class OnePackage(BuildHookInterface[Any]):
    """Writes the package into a temporary folder for hatchling."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the package. Raises RuntimeError for an editable installation, which would use unchanged files."""
        if version == "editable":
            raise RuntimeError("an editable installation is not supported. Next: run launch.py, or install a wheel")
        self._folder = Path(tempfile.mkdtemp())
        write_package(Path(self.root), self._folder)
        build_data["force_include"][str(self._folder)] = PACKAGE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self._folder)


def write_package(root: Path, target: Path) -> None:
    """Write the package's content, from the clone at `root`, into the folder `target`."""
    sources = [path for part in PARTS for path in (root / part).rglob("*")] + [root / "launch.py"]
    pairs = [(path, path.relative_to(root)) for path in sources]
    # tracking/base/installation.py reads the version from the file beside conf, as in a clone.
    pairs += [(path, path.relative_to(root / PACKAGE)) for path in (root / PACKAGE).rglob("*")]
    pairs.append((root / "pyproject.toml", Path("pyproject.toml")))
    for path, relative in pairs:
        if path.is_file() and path.suffix != ".pyc":
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            content = path.read_bytes()
            (target / relative).write_bytes(installed(content, path) if path.suffix == ".py" else content)
    if built_from := commit(root):
        (target / "built_from.json").write_text(json.dumps(built_from))


def installed(source: bytes, path: Path) -> bytes:
    """The source with our packages imported from `timetrial`, line by line.

    Raises ValueError for an import that would then bind another name.
    """
    lines = source.splitlines(keepends=True)
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and is_ours(node.module):
            before, after = f"from {node.module}", f"from {PACKAGE}.{node.module}"
        elif isinstance(node, ast.Import) and any(is_ours(alias.name) for alias in node.names):
            before, after = f"import {node.names[0].name}", plain_import(node, tree, path)
        else:
            continue
        line, start = lines[node.lineno - 1], node.col_offset
        assert line[start:].startswith(before.encode()), f"{path}:{node.lineno}: {before}"
        lines[node.lineno - 1] = line[:start] + after.encode() + line[start + len(before) :]
    return b"".join(lines)


def plain_import(node: ast.Import, tree: ast.Module, path: Path) -> str:
    """The statement in the package that binds the same name as `import X` in a clone. Raises ValueError."""
    name = node.names[0].name
    top, _, inner = name.partition(".")
    used = any(isinstance(part, ast.Name) and part.id == top for part in ast.walk(tree))
    if len(node.names) > 1 or (inner and used and not node.names[0].asname):
        raise ValueError(f"{path}:{node.lineno}: cannot be moved to {PACKAGE}. Next: write `from X import Y`")
    return f"import {PACKAGE}.{name}" if inner else f"from {PACKAGE} import {name}"


def is_ours(module: str) -> bool:
    return module.partition(".")[0] in PARTS


def commit(root: Path) -> dict[str, Any]:
    """`commit` and `dirty` of the repository at `root`; {} without a repository, as in an unpacked source archive."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return {}
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return {}
