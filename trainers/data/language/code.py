"""Python sources of an environment's packages, as text to train on: every machine has them, without a network."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from conf.schema import ConfigError
from trainers.data.language.data import SEQUENCE_LENGTH, LanguageData, check_counts
from trainers.data.language.tokens import of_made
from trainers.data.reading.folder_index import listed, resolved
from trainers.data.reading.regular_file import read_bytes
from trainers.data.tokens import Source, Stretch, made_tokens

SIZE = 40_000_000  # bytes of sources
MOST_BYTES = 1 << 19  # Larger files are data, not code.
HELD_OUT = 20  # One in so many files is for evaluation.


def code(
    path: str | None = None,
    size: int = SIZE,
    tokenizer: str | None = None,
    vocabulary: int | None = None,
    sequence_length: int = SEQUENCE_LENGTH,
    validation_tokens: int | None = None,
) -> LanguageData:
    """Return up to `size` bytes of the sources in folder `path`, by default of this interpreter's packages.

    Raises ConfigError if there are too few sources.
    """
    check_counts(size=size, vocabulary=vocabulary, sequence_length=sequence_length)
    if path:
        listed(path, resolved(path))
    roots = [str(resolved(path))] if path else environment_folders()
    files = sources_in(roots)
    identity = [str(size), *(f"{name} {file.size} {file.changed_ns}" for name, file in files.items())]
    made = made_tokens("code", identity, tokenizer, vocabulary, lambda: chosen(files, size, roots))
    return of_made("code", made, sequence_length, validation_tokens)


@dataclass(frozen=True)
class File:
    path: str
    size: int
    changed_ns: int


def environment_folders() -> list[str]:
    """Return the folders of the running interpreter's library and packages."""
    paths = sysconfig.get_paths()
    return list(dict.fromkeys(os.path.realpath(paths[key]) for key in ("stdlib", "purelib", "platlib")))


def sources_in(roots: Sequence[str]) -> dict[str, File]:
    """Return the sources by name, in the order of names; a name begins with that of its root's folder.

    Links, files in another root, empty or too large files, and folders that cannot be listed are left out.
    """
    sources: dict[str, File] = {}
    for root in roots:
        open_folders = [root]
        while open_folders:
            for entry in _entries(open_folders.pop()):
                if entry.is_dir(follow_symlinks=False):
                    open_folders += [] if entry.name == "__pycache__" or entry.path in roots else [entry.path]
                elif entry.name.endswith(".py") and entry.is_file(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    if 0 < stat.st_size <= MOST_BYTES:
                        name = Path(root).name + entry.path[len(root) :]
                        sources[name] = File(entry.path, stat.st_size, stat.st_mtime_ns)
    return dict(sorted(sources.items()))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []


def chosen(files: Mapping[str, File], size: int, roots: Sequence[str]) -> list[Source]:
    """Choose files of up to `size` bytes in all, in the order of their digests, which also decide each one's part.

    This gives a fair sample, in an order that does not follow packages. Among identical files the first one counts.
    """
    by_digest: dict[str, str] = {}
    for name, file in files.items():
        content = content_of(file.path)
        if content:
            by_digest.setdefault(hashlib.sha256(content).hexdigest(), name)
    sources, left = [], size
    for digest in sorted(by_digest):
        file = files[by_digest[digest]]
        left -= file.size
        if left < 0:
            break
        stretch = [Stretch(file.path, 0, file.size, begins=True)]
        # The first digits decide the order, so the last ones decide the part.
        train = int(digest[-8:], 16) % HELD_OUT > 0
        sources.append(Source(by_digest[digest], digest, stretch if train else [], [] if train else stretch))
    if not by_digest:
        raise ConfigError(
            f"dataset=code: no Python sources in {', '.join(roots)}. Next: set dataset.path to a folder with some, or"
            " give dataset=grammar, which needs no files"
        )
    if len({source.part for source in sources}) < 2:
        raise ConfigError(
            f"dataset=code: {', '.join(roots)} has {len(sources)} Python sources within dataset.size={size} bytes, too"
            " few to train and evaluate on. Next: give a larger size, or set dataset.path to a folder with more sources"
        )
    return sources


def content_of(path: str) -> bytes:
    """Return a file's bytes; empty if it is not UTF-8 or cannot be read."""
    try:
        content = read_bytes(path)
        content.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return b""
    return content
