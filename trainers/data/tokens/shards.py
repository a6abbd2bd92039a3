"""Files of tokens in the format of llm.c, whose headers are checked, and which are then read through a memory map.

A file begins with 256 int32: a number that says what it is, the format's version, and how many tokens follow. Source:
llm.c's dev/data/data_common.py, whose GPT-2 files FineWeb's are.
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
DIGESTED, DIGESTED_BYTES = 16, 1 << 16  # So many pieces of a file, spread evenly, decide its digest.


@dataclass(frozen=True)
class Format:
    """What a header's first two numbers say."""

    magic: int
    version: int
    type: str  # NumPy's name of a token's
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
        """All of them, mapped into memory; the kernel is told that they will be read."""
        with opened(self.path) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
            return np.memmap(file, self.format.type, "r", HEADER_BYTES, (self.num_tokens,))

    def digest(self) -> str:
        """Of size and header, and of pieces of the tokens."""
        with opened(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            hasher = hashlib.blake2b(f"{size} {self.format.magic}".encode(), digest_size=16)
            for place in np.linspace(HEADER_BYTES, max(HEADER_BYTES, size - DIGESTED_BYTES), DIGESTED, dtype=np.int64):
                file.seek(int(place))
                hasher.update(file.read(DIGESTED_BYTES))
        return hasher.hexdigest()


def token_files(paths: Sequence[Path], sequence_length: int) -> list[TokenFile]:
    """The files, of which only the headers are read.

    Raises ConfigError, with the file's name, for one that is none of llm.c's, is not whole, is of another tokenizer
    than the first, or does not hold a sequence and the token behind it.
    """
    files = [_read_header(path) for path in paths]
    for file in files:
        if file.format != files[0].format:
            raise ConfigError(
                f"{file.path}: has {file.format.tokenizer} tokens, and {files[0].path.name} has"
                f" {files[0].format.tokenizer}; keep files of one tokenizer in a folder"
            )
        if file.num_tokens <= sequence_length:
            raise ConfigError(
                f"{file.path}: has {file.num_tokens:,} tokens, and a sequence of dataset.sequence_length="
                f"{sequence_length} takes {sequence_length + 1:,} with the token behind it; give a smaller"
                " sequence_length, or remove the file"
            )
    return files


def _read_header(path: Path) -> TokenFile:
    try:
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            numbers = np.frombuffer(file.read(HEADER_BYTES), "<i4")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as tokens ({error}); put a whole file there") from error
    if len(numbers) < HEADER_INTS:
        raise ConfigError(f"{path}: has {size:,} bytes, less than a header of {HEADER_BYTES}; put a whole file there")
    magic, version, num_tokens = numbers[:3].tolist()
    form = FORMATS.get(magic)
    if form is None or version != form.version:
        known = " or ".join(f"{form.magic} and version {form.version} ({form.tokenizer})" for form in FORMATS.values())
        raise ConfigError(
            f"{path}: is no file of llm.c's tokens: it begins with {magic} and version {version}, expected {known};"
            " remove it, or make it anew"
        )
    expected = HEADER_BYTES + num_tokens * np.dtype(form.type).itemsize
    if size != expected or num_tokens < 0:
        raise ConfigError(
            f"{path}: is torn: its header says {num_tokens:,} tokens, which are {expected:,} bytes, and it has"
            f" {size:,}; copy or make it anew"
        )
    return TokenFile(path, form, num_tokens)


def header(form: Format, num_tokens: int) -> bytes:
    """What so many tokens come behind."""
    numbers = np.zeros(HEADER_INTS, "<i4")
    numbers[:3] = form.magic, form.version, num_tokens
    return numbers.tobytes()


def write_tokens(path: Path, tokens: np.ndarray, form: Format) -> None:
    """A file of the format. `tokens` are below 2^16 where its type has no more bits."""
    assert tokens.size == 0 or int(tokens.max()) <= np.iinfo(form.type).max
    path.write_bytes(header(form, len(tokens)) + np.ascontiguousarray(tokens, form.type).tobytes())
