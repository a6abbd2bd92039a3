"""A console without markup and without secrets, on an output that may be gone before the work is done."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import IO, Any, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tracking.base.safe_text import printable, visible

WIDTH_OF_A_FILE = 260  # characters, where the output is no terminal and nothing says how wide it is


class LastingStream:
    """An output for longer than it may last: when its terminal, pipe or disk is gone, nothing is shown any more.

    A training must not end because nobody looks at it. `forgives` says which errors mean that nobody does; the others
    are raised.
    """

    def __init__(self, stream: IO[str], forgives: type[OSError] = OSError) -> None:
        self._stream = stream
        self._forgives = forgives

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except self._forgives:
            self.give_up()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except self._forgives:
            self.give_up()

    def give_up(self) -> None:
        """Show nothing any more; what is still in the buffer goes nowhere too, also at the interpreter's end."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class SafeConsole(Console):
    """Prints texts without the secrets in them, and none of their characters commands the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(printable(thing) if isinstance(thing, str) else thing for thing in objects), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What a table's cells, or a progress line, come to."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


def make_console() -> Console:
    """A console on standard output; wide in a file or a pipe, so that logs get whole lines, unless $COLUMNS is set.

    Brackets and colons are neither markup nor emoji: they stand in error messages and in names.
    """
    stream = sys.stdout if isinstance(sys.stdout, LastingStream) else LastingStream(sys.stdout)
    console = SafeConsole(file=cast(IO[str], stream), highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH_OF_A_FILE
    return console
