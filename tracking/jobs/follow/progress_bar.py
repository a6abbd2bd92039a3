"""The progress bar of a run. It is imported after the run has begun, since rich is slow to import."""

from __future__ import annotations

from contextlib import suppress

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from tracking.jobs.follow.waiting import Waiting
from tracking.record import run_folder

BAR_WIDTH = 20  # characters


class WaitingColumn(ProgressColumn):
    """What a start waits for. Rich's thread draws it, and an error here would end the drawing."""

    def __init__(self, waiting: Waiting) -> None:
        super().__init__()
        self._waiting = waiting

    def render(self, task: Task) -> Text:
        with suppress(Exception):
            return Text(self._waiting.words(run_folder.now_ms()))
        return Text()


def progress_bar(console: Console, waiting: Waiting | None) -> Progress:
    """A progress bar that is cleared at its end; disabled without a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(BAR_WIDTH),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        *([WaitingColumn(waiting)] if waiting else []),
        TextColumn("{task.fields[detail]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
