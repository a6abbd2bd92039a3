"""A table of numbers and text, printed on a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table as RichTable
from rich.text import Text

from tracking.base.number_text import written_out
from tracking.base.safe_text import in_markdown, visible

Cell = str | float | None


@dataclass(frozen=True)
class Table:
    """A titled table. `columns` maps headings to number formats. A cell of None is unknown and left blank."""

    title: str
    columns: Mapping[str, str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    kind: str = ""  # tells the audit how to recompute the cells
    about: str = ""  # the table's workload, if it has one

    def column(self, heading: str) -> list[Cell]:
        return [row[list(self.columns).index(heading)] for row in self.rows]

    def text(self) -> list[list[str]]:
        patterns = list(self.columns.values())
        return [[shown(cell, pattern) for cell, pattern in zip(row, patterns, strict=True)] for row in self.rows]

    def rich(self) -> RichTable:
        drawn = RichTable(title=self.title, title_justify="left", caption=self.note or None, caption_justify="left")
        for heading in self.columns:
            drawn.add_column(heading, overflow="fold")
        for row in self.text():
            drawn.add_row(*(Text(visible(cell)) for cell in row))  # Text, since rich would read brackets as a style
        return drawn

    def markdown(self) -> str:
        lines = [list(self.columns), ["---"] * len(self.columns), *self.text()]
        body = "".join(f"| {' | '.join(map(in_markdown, line))} |\n" for line in lines)
        return f"**{in_markdown(self.title)}**\n\n{body}" + (f"\n{in_markdown(self.note)}\n" if self.note else "")


def shown(cell: Cell, pattern: str) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else written_out((pattern or "{:g}").format(cell), cell)
