"""Files of tokens in llm.c's format: checks their headers, and reads them through a memory map.

A file begins with 256 int32: a magic number, the format's version, and the number of tokens that follow.
Source: llm.c's dev/data/data_common.py; FineWeb's files are in its GPT-2 format.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conf.schema import ConfigError
from trainers.data.reading.regular_file import opened

HEADER_INTS = 256
HEADER_BYTES = 4 * HEADER_INTS
DIGESTED, DIGESTED_BYTES = 16, 1 << 16  # number and size of the evenly spaced samples for a file's digest


@dataclass(frozen=True)
class Format:
    """A format of token files, by a header's first two numbers."""

    magic: int
    version: int
    type: str  # NumPy's dtype of a token
    vocabulary: int
    tokenizer: str


GPT2 = Format(20240520, 1, "<u2", 50_257, "GPT-2's")
LLAMA3 = Format(20240801, 7, "<u4", 128_256, "Llama 3's")
FORMATS = {form.magic: form for form in (GPT2, LLAMA3)}


@dataclass(frozen=True)
class TokenFile:
    path: Path
    format: Format
    num_tokens: int

    def tokens(self) -> np.ndarray:
        """Return all tokens, memory-mapped; the kernel is advised to read ahead."""
        with opened(self.path) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
            return np.memmap(file, self.format.type, "r", HEADER_BYTES, (self.num_tokens,))

    def digest(self) -> str:
        """Return a digest of size, header and samples of the tokens."""
        with opened(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            hasher = hashlib.blake2b(f"{size} {self.format.magic}".encode(), digest_size=16)
            for place in np.linspace(HEADER_BYTES, max(HEADER_BYTES, size - DIGESTED_BYTES), DIGESTED, dtype=np.int64):
                file.seek(int(place))
                hasher.update(file.read(DIGESTED_BYTES))
        return hasher.hexdigest()


def token_files(paths: Sequence[Path], sequence_length: int) -> list[TokenFile]:
    """Return the files after reading only their headers.

    Raises ConfigError, naming the file, if it is not in llm.c's format, is truncated, belongs to another tokenizer than
    the first, or is shorter than a sequence and the token after it.
    """
    files = [_read_header(path) for path in paths]
    for file in files:
        if file.format != files[0].format:
            raise ConfigError(
                f"{file.path}: has {file.format.tokenizer} tokens, but {files[0].path.name} has"
                f" {files[0].format.tokenizer}. Next: keep only files of one tokenizer in a folder"
            )
        if file.num_tokens <= sequence_length:
            raise ConfigError(
                f"{file.path}: has {file.num_tokens:,} tokens, but dataset.sequence_length={sequence_length} needs"
                f" {sequence_length + 1:,}, including the next token. Next: give a smaller sequence_length, or remove"
                " the file"
            )
    return files


def _read_header(path: Path) -> TokenFile:
    try:
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            numbers = np.frombuffer(file.read(HEADER_BYTES), "<i4")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as tokens ({error}). Next: put a complete file there") from error
    if len(numbers) < HEADER_INTS:
        raise ConfigError(
            f"{path}: has {size:,} bytes, less than a header of {HEADER_BYTES}. Next: put the complete file there"
        )
    magic, version, num_tokens = numbers[:3].tolist()
    form = FORMATS.get(magic)
    if form is None or version != form.version:
        known = " or ".join(f"{form.magic} and version {form.version} ({form.tokenizer})" for form in FORMATS.values())
        raise ConfigError(
            f"{path}: is not in llm.c's format: it begins with {magic} and version {version}, expected {known}."
            " Next: remove it, or make it anew"
        )
    expected = HEADER_BYTES + num_tokens * np.dtype(form.type).itemsize
    if size != expected or num_tokens < 0:
        raise ConfigError(
            f"{path}: is truncated or damaged: its header says {num_tokens:,} tokens, which are {expected:,} bytes, but"
            f" it has {size:,}. Next: copy it again or make it anew"
        )
    return TokenFile(path, form, num_tokens)


def header(form: Format, num_tokens: int) -> bytes:
    """Return the header of a file of so many tokens."""
    numbers = np.zeros(HEADER_INTS, "<i4")
    numbers[:3] = form.magic, form.version, num_tokens
    return numbers.tobytes()


def write_tokens(path: Path, tokens: np.ndarray, form: Format) -> None:
    """Write a file in the format; all tokens must fit into its dtype."""
    assert tokens.size == 0 or int(tokens.max()) <= np.iinfo(form.type).max
    path.write_bytes(header(form, len(tokens)) + np.ascontiguousarray(tokens, form.type).tobytes())
