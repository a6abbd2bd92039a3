"""Join the pieces from a pipe or a growing file into whole lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MAX_LINE_BYTES = 65_536  # the longest line; longer ones are cut into several
SHOWN_CHARS = 200  # characters of a line in a message
ENDS = re.compile(rb"\r\n|\n|\r")  # progress bars end lines with \r


class LineSplitter:
    """Turns bytes into complete lines. Invalid UTF-8 is replaced."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that end in this chunk, without their line ends and without empty lines."""
        *whole, rest = ENDS.split(self._rest + chunk)
        cut = len(rest) - len(rest) % MAX_LINE_BYTES
        self._rest = rest[cut:]
        parts = (
            line[at : at + MAX_LINE_BYTES]
            for line in [*whole, rest[:cut]]
            for at in range(0, len(line), MAX_LINE_BYTES)
        )
        return [part.decode("utf-8", "replace") for part in parts]

    def end(self) -> list[str]:
        """The last line, if it has no line end."""
        return self.feed(b"\n") if self._rest else []


@dataclass
class SkippedLines:
    """Lines meant for us that could not be read or used: their count, and the first one's problem."""

    count: int = 0
    first: str = ""
    _file_problems: set[str] = field(default_factory=set)

    def add(self, problem: str, line: str) -> None:
        self.count += 1
        self.first = self.first or f"{problem}: {line[:SHOWN_CHARS]}"

    def add_file_problem(self, problem: str) -> None:
        """Count a problem of a whole file once, however often the file is read."""
        if problem not in self._file_problems:
            self._file_problems.add(problem)
            self.count += 1
            self.first = self.first or problem

    def __str__(self) -> str:
        return f"{self.count}: {self.first}"
