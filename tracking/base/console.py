"""A console without markup and without secrets, on an output that may close before the work is done."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from tracking.base.safe_text import printable, visible

WIDTH_OF_A_FILE = 260  # characters, if the output is not a terminal and its width is not known
# Replacements for characters that the output's encoding lacks; all others become "?". rich cuts cells with "…".
IN_ASCII = {"±": "+-", "≥": ">=", "≤": "<=", "×": "x", "·": "*", "→": "->", "–": "-", "…": "~"}


def open_closed_streams() -> None:
    """Open /dev/null for each standard stream that was closed before the start, as by `>&-`.

    Otherwise the next file would get its descriptor, and a child process would print into that file.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


class LastingStream:
    """An output stream that discards text once its terminal, pipe or disk is gone.

    A training must not end because its output closed. `forgives` are the errors that mean this; others are raised.
    """

    def __init__(self, stream: IO[str], forgives: type[OSError] = OSError) -> None:
        self._stream = stream
        self._forgives = forgives

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except UnicodeEncodeError as error:
            return self.write(encodable(text, error.encoding))
        except self._forgives:
            self.give_up()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except self._forgives:
            self.give_up()

    def give_up(self) -> None:
        """Discard all further text, and what is still in the buffer, also at the interpreter's exit."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class SafeConsole(Console):
    """Prints texts without secrets and without control characters."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(printable(thing) if isinstance(thing, str) else thing for thing in objects), **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """The text in the output's encoding, before it is measured: later replacements would shift columns."""
        return super().render_str(encodable(text, self.encoding), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a table or a progress line, with control characters made visible."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


class Drawing:
    """A context for drawing, which must not end a run: it prints the first exception and suppresses all.

    The printed line begins with `trouble`, which says what is missing. Signals that stop the launcher are not an
    `Exception`, so they pass.
    """

    def __init__(self, console: Console, trouble: str) -> None:
        self._console = console
        self._trouble = trouble
        self._reported = False

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        if not self._reported:
            self._reported = True
            with suppress(Exception):  # The console itself may be broken.
                self._console.print(f"note: {self._trouble}: {type(error).__name__}: {error}", soft_wrap=True)
        return True


def encodable(text: str, encoding: str) -> str:
    """The text with a replacement for each character that this encoding lacks."""
    return text.encode(encoding, "timetrial.replace").decode(encoding)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(IN_ASCII.get(character, "?") for character in error.object[error.start : error.end]), error.end


codecs.register_error("timetrial.replace", _replaced)


def make_console() -> Console:
    """A console on standard output. Unless $COLUMNS is set, a file or a pipe is wide, so that logs get whole lines.

    Markup and emoji are off, because error messages and names contain brackets and colons.
    """
    stream = sys.stdout if isinstance(sys.stdout, LastingStream) else LastingStream(sys.stdout)
    console = SafeConsole(file=cast(IO[str], stream), highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH_OF_A_FILE
    return console
