"""Makes paths short, and untrusted texts, such as a run's tags, safe to show in a terminal, in Markdown and in CSV."""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from tracking.base.secrets import redact

# Control characters: they move the cursor, colour, rename the window or turn the writing direction. \n and \t may stay.
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# The same, with \t and \n, and lone surrogates, which cannot be encoded.
CONTROL = re.compile(rf"{CONTROLS.pattern}|[\t\n\ud800-\udfff]")
MARKUP = re.compile(r"[\\`~\[|]")  # fences, links, pictures, ends of cells; emphasis is harmless


def path_to_type(path: Path) -> str:
    """A path as a user types it: relative within the current folder, else absolute."""
    absolute, here = path.absolute(), Path.cwd()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)


def path_in_command(path: Path) -> str:
    """The path as a word of a command that a user pastes into a shell."""
    return shlex.quote(path_to_type(path))


def breaks_a_line(text: str) -> str:
    """The first control character in a text that must stay one line; empty without one."""
    match = CONTROL.search(text)
    return match[0] if match else ""


# A cell that a spreadsheet computes, also after a semicolon, the separator in locales with decimal commas.
FORMULA = re.compile(r"(^|[;\t\n])(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20]\s*\S)")
NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
NUMBERS = re.compile(rf"{NUMBER} ?%?(?: ± {NUMBER} ?%?)?", re.IGNORECASE)  # -0.5, +3 %, -1.2 ± 0.3


def visible(text: str) -> str:
    r"""The text with control characters in Python's notation: `\x1b` for escape, which starts terminal commands."""
    return CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def printable(text: str) -> str:
    """The text without secrets and without control characters."""
    return visible(redact(text))


def one_line(text: str) -> str:
    """The text as `printable` gives it, in one line: a line end in a folder's name could forge a line."""
    return printable(text).replace("\n", "\\n")


def in_markdown(text: str) -> str:
    """The text as one line of Markdown, with HTML, links and pictures escaped."""
    line = " ".join(visible(text).split("\n"))
    line = MARKUP.sub(lambda match: f"\\{match[0]}", line)
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def in_csv(rows: Iterable[Sequence[object]]) -> str:
    """The rows as CSV without formulas: an apostrophe before a formula makes spreadsheets show it as text."""
    text = io.StringIO()
    csv.writer(text).writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return shown if NUMBERS.fullmatch(shown) else FORMULA.sub(r"\1'", shown)
