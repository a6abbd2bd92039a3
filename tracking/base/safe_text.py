"""Texts that anybody may have written, such as a run's tags, made fit for a terminal, for Markdown and for CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from tracking.base.secrets import redact

# What moves the cursor, colours, renames the window or turns the direction of writing; line ends and tabs may stay.
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# Beside those, what ends a line or a cell, and half of a character, which no file can be written with.
CONTROL = re.compile(rf"{CONTROLS.pattern}|[\t\n\ud800-\udfff]")
MARKUP = re.compile(r"[\\`~\[|]")  # a fence, a link, a picture, the end of a cell; emphasis harms nobody


def breaks_a_line(text: str) -> str:
    """The first control character of a text that is to stay one line; empty where there is none."""
    match = CONTROL.search(text)
    return match[0] if match else ""


# What a spreadsheet computes: a cell that begins so, also behind what is a separator where decimals have a comma.
FORMULA = re.compile(r"(^|[;\t\n])(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20]\s*\S)")
NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
NUMBERS = re.compile(rf"{NUMBER} ?%?(?: ± {NUMBER} ?%?)?", re.IGNORECASE)  # -0.5, +3 %, -1.2 ± 0.3


def visible(text: str) -> str:
    r"""The text with control characters as Python writes them: `\x1b` for the one that starts a terminal's commands."""
    return CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def printable(text: str) -> str:
    """The text without secrets, and without a terminal's commands."""
    return visible(redact(text))


def one_line(text: str) -> str:
    """The text as `printable` has it, in one line: a folder's name may hold a line's end, and forge a line."""
    return printable(text).replace("\n", "\\n")


def in_markdown(text: str) -> str:
    """The text as one line of Markdown that shows it: without HTML, links and pictures of its own."""
    line = " ".join(visible(text).split("\n"))
    line = MARKUP.sub(lambda match: f"\\{match[0]}", line)
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def in_csv(rows: Iterable[Sequence[object]]) -> str:
    """The rows as CSV, in which no text is a formula: an apostrophe before it has spreadsheets show it as it is."""
    text = io.StringIO()
    csv.writer(text).writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return shown if NUMBERS.fullmatch(shown) else FORMULA.sub(r"\1'", shown)
