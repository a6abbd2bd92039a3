"""Splits texts into stretches of bytes that several processes can encode without changing the tokens."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from conf.schema import ConfigError
from trainers.data.reading.regular_file import conversion, opened

STRETCH_BYTES = 4 << 20
HELD_OUT = 50  # One byte in so many is held out for evaluation.
# No tokenizer merges across the end of a line, so a text can be split between a line's last sign and its end. A space
# there would be part of the end: ASCII's, and these of Unicode.
SPACES = "\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
NO_SPACE = b"".join(b"(?<!%b)" % space.encode() for space in SPACES)
CUT = re.compile(rb"(?:[!-~]|[\x80-\xbf]" + NO_SPACE + rb")(?=\r?\n)")
LOOK_AHEAD = 1 << 16
LETTER_BYTES = 4  # at most, in UTF-8


@dataclass(frozen=True)
class Stretch:
    """Bytes `start` to `end` of a file; if it `begins` a text, the separator precedes its tokens."""

    path: str
    start: int
    end: int
    begins: bool

    def read(self) -> bytes:
        """Return the bytes. Raises ConfigError for a file that cannot be read."""
        try:
            with opened(self.path) as file:
                file.seek(self.start)
                return file.read(self.end - self.start)
        except OSError as error:
            raise ConfigError(
                f"{self.path}: cannot be read ({error.strerror}). Next: make it readable, or remove it"
            ) from error

    def text(self) -> str:
        """Return the text. Raises ConfigError, naming file and place, for bytes that are not UTF-8."""
        content = self.read()
        try:
            return content.decode("utf-8-sig" if self.start == 0 else "utf-8")  # utf-8-sig drops a byte order mark.
        except UnicodeDecodeError as error:
            place = self.start + error.start
            raise ConfigError(f"{self.path}: byte {place:,} is not UTF-8. {conversion(self.path)}") from None


def stretches(path: Path, start: int, end: int, most: int = STRETCH_BYTES) -> Iterator[Stretch]:
    """Split a text, bytes `start` to `end` of a file, into stretches of about `most` bytes."""
    first = start
    with opened(path) as file:
        while start < end:
            stop = cut_behind(file, start + most, end)
            yield Stretch(str(path), start, stop, start == first)
            start = stop


def held_out(path: Path) -> int:
    """Return the start of a file's last part, which is for evaluation; the file's end if it cannot be split."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        return cut_behind(file, size - size // HELD_OUT - 1, size)


def cut_behind(file: BinaryIO, place: int, end: int) -> int:
    """Return the first place from `place` on where a text can be split, else `end`."""
    while place < end:
        behind = min(place, LETTER_BYTES - 1)  # The letter at `place` may have begun before.
        file.seek(place - behind)
        content = file.read(LOOK_AHEAD)
        if match := CUT.search(content, behind):
            return min(end, place - behind + match.end())
        place += max(1, len(content) - behind - 2)  # The last sign here may end a line.
    return end


def shares(all_stretches: Sequence[Stretch], num: int) -> list[list[Stretch]]:
    """Split stretches, in order, into `num` runs of about equally many bytes."""
    total = sum(stretch.end - stretch.start for stretch in all_stretches)
    parts: list[list[Stretch]] = [[] for _ in range(num)]
    done = 0
    for stretch in all_stretches:
        parts[min(num - 1, done * num // max(1, total))].append(stretch)
        done += stretch.end - stretch.start
    return parts
