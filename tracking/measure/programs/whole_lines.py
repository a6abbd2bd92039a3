"""Whole lines out of the pieces in which a pipe or a growing file gives them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_BYTES = 65_536  # a line's length at most; the parts of a longer one are lines of their own
SHOWN_CHARS = 200  # of a line
ENDS = re.compile(rb"\r\n|\n|\r")  # progress bars write over a line again and again


class Lines:
    """Feed it bytes; it gives the lines that are complete. What is no UTF-8 is replaced."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that end in this chunk, without their ends; empty lines are left out."""
        *whole, rest = ENDS.split(self._rest + chunk)
        cut = len(rest) - len(rest) % MOST_BYTES
        self._rest = rest[cut:]
        parts = (line[at : at + MOST_BYTES] for line in [*whole, rest[:cut]] for at in range(0, len(line), MOST_BYTES))
        return [part.decode("utf-8", "replace") for part in parts]

    def end(self) -> list[str]:
        """The last line, which nothing ended."""
        return self.feed(b"\n") if self._rest else []


@dataclass
class LeftOut:
    """What is meant for us and cannot be read or does not fit: how many lines, and what is wrong with the first."""

    count: int = 0
    first: str = ""
    _of_files: set[str] = field(default_factory=set)

    def add(self, wrong: str, line: str) -> None:
        self.count += 1
        self.first = self.first or f"{wrong}: {line[:SHOWN_CHARS]}"

    def once(self, wrong: str) -> None:
        """What is wrong with a whole file, however often it is looked at."""
        if wrong not in self._of_files:
            self._of_files.add(wrong)
            self.count += 1
            self.first = self.first or wrong

    def __str__(self) -> str:
        return f"{self.count}: {self.first}"
