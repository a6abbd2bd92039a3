"""Texts that anybody may have written, such as a run's tags, made fit for a terminal and for Markdown."""

from __future__ import annotations

import re

from conf.secrets import redact

# What moves the cursor, colours, renames the window or turns the direction of writing; line ends and tabs may stay.
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# Beside those, what ends a line or a cell, and half of a character, which no file can be written with.
CONTROL = re.compile(rf"{CONTROLS.pattern}|[\t\n\ud800-\udfff]")
MARKUP = re.compile(r"[\\`~\[|]")  # a fence, a link, a picture, the end of a cell; emphasis harms nobody


def breaks_a_line(text: str) -> str:
    """The first control character of a text that is to stay one line; empty where there is none."""
    match = CONTROL.search(text)
    return match[0] if match else ""


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
