"""The user's text files, converted to tokens once."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence
from pathlib import Path

from conf.schema import ConfigError
from trainers.data.language.data import SEQUENCE_LENGTH, LanguageData, check_counts
from trainers.data.language.tokens import of_made
from trainers.data.reading.folder_index import listed, resolved
from trainers.data.reading.regular_file import check_encoding, opened
from trainers.data.tokens import Source, escaped, held_out, made_tokens, stretches

SUFFIX = ".txt"
# A whole word of the name, between signs, digits or the ends.
VALIDATION = re.compile(r"(?<![^\W\d_])(val|valid|validation)(?![^\W\d_])")
NAMED = 3  # number of files that the log names

log = logging.getLogger(__name__)


def text(
    path: str,
    tokenizer: str | None = None,
    vocabulary: int | None = None,
    sequence_length: int = SEQUENCE_LENGTH,
    validation_tokens: int | None = None,
) -> LanguageData:
    """Return the text in a file, or in all *.txt files in and below a folder, each an independent text.

    Files with the word `val` in their names are for evaluation; without such files, the last part of each file is.
    Raises ConfigError, naming the file, for text that cannot be used.
    """
    check_counts(vocabulary=vocabulary, sequence_length=sequence_length)
    root = resolved(path)
    files = files_in(path, root)
    held = [file for file in files if VALIDATION.search(file.name)]
    identity = [f"{file} {file.stat().st_size} {file.stat().st_mtime_ns} {file in held}" for file in files]
    made = made_tokens("text", identity, tokenizer, vocabulary, lambda: sources(root, files, held))
    log.warning("dataset=text: evaluated on %s", words(held) if held else f"the last part of {words(files)}")
    return of_made("text", made, sequence_length, validation_tokens)


def words(files: Sequence[Path]) -> str:
    """Return the files' names, with escapes for characters that a log may not print."""
    names = ", ".join(escaped(file.name).encode(errors="backslashreplace").decode() for file in files[:NAMED])
    return names if len(files) <= NAMED else f"{names} and {len(files) - NAMED} more"


def files_in(path: str, root: Path) -> list[Path]:
    """Return the text files that are not empty, in the order of their names. Raises ConfigError without any."""
    if root.is_dir():
        listed(path, root)  # rglob would silently skip a folder that cannot be listed.
    candidates = [root] if root.is_file() else sorted(root.rglob(f"*{SUFFIX}"))
    files = [file for file in candidates if file.is_file() and file.stat().st_size]
    if not files:
        problem = f"{root} has no {SUFFIX} file with text" if root.exists() else f"{root} does not exist"
        raise ConfigError(
            f"dataset.path={path}: {problem}. Next: set dataset.path to a file of text, or a folder of {SUFFIX} files"
        )
    return files


def sources(root: Path, files: Sequence[Path], held: Sequence[Path]) -> list[Source]:
    """Return each file's text of both parts. Raises ConfigError if one part is empty."""
    made = []
    for file in files:
        try:
            check_encoding(file)
            with opened(file) as content:
                sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        except OSError as error:
            raise ConfigError(
                f"{file}: cannot be read ({error.strerror}). Next: make it readable, or remove it"
            ) from error
        size = file.stat().st_size
        border = (0 if file in held else size) if held else held_out(file)
        name = file.name if root.is_file() else str(file.relative_to(root))
        made.append(Source(name, sha256, list(stretches(file, 0, border)), list(stretches(file, border, size))))
    if not any(source.train for source in made) or not any(source.validation for source in made):
        missing = "train" if any(source.validation for source in made) else "evaluate"
        for stretch in (each for source in made for each in (*source.train, *source.validation)):
            stretch.text()  # Where lines were not found, bytes that are not UTF-8 are the likelier cause.
        raise ConfigError(
            f"dataset.path={root}: has no text left to {missing} on. Next: give text with more lines, or some files"
            " with the word val in their names"
        )
    return made
