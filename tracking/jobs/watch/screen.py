"""Draws runs that train: as a table in a terminal, else as one line each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tracking.base.number_text import epoch_text, significant
from tracking.jobs.watch.live_run import HEAD, LiveRun, live_runs
from tracking.record import run_folder

MOST_ROWS = 30
HEADINGS = ("run", "state", "epoch", "samples/s", "loss", "evaluated", "left at most", "GPU %", "memory %", "CPU %")
BY_WEIGHT = (
    "run",
    "state",
    "epoch",
    "left at most",
    "evaluated",
    "samples/s",
    "loss",
    "GPU %",
    "CPU %",
    "memory %",
)  # most important first
GAP = 2  # characters between two columns of the table


def table(runs: Sequence[LiveRun], now_ms: int, width: int = 1000, height: int = 1000) -> RenderableType:
    """The table of runs: training ones first, then ended ones; a run of several nodes has a row for each node.

    What does not fit into `width` and `height` is left out: columns by BY_WEIGHT, runs and warnings from the end.
    """
    ordered = sorted(runs, key=lambda run: (run.has_ended, run.folder.name))
    warnings = [f"{run.name}: {words}" for run in ordered[:MOST_ROWS] for words in run.warnings(now_ms)]
    free = height - 2 - min(len(warnings), height // 3)  # without the headings and the number of other runs
    shown: list[LiveRun] = []
    rows: list[list[str]] = []
    for run in ordered[:MOST_ROWS]:
        more = rows_of(run, now_ms)
        if shown and len(rows) + len(more) > free:
            break
        shown.append(run)
        rows += more
    grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    kept = fitting(rows, width)
    for number in kept:
        grid.add_column(HEADINGS[number], justify="left" if number < 2 else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(row[number] for number in kept), style="dim" if row[0].startswith("  node ") else "")
    parts: list[RenderableType] = [grid]
    if len(ordered) > len(shown):
        parts.append(Text(f"and {len(ordered) - len(shown)} more"))
    parts += [Text(words, style="yellow") for words in warnings[: max(1, height - 2 - len(rows))]]
    return Group(*parts)


def rows_of(run: LiveRun, now_ms: int) -> list[list[str]]:
    """The row of a run, and one for each of its nodes if it has several."""
    nodes = run.nodes if len(run.nodes) > 1 else ()
    of_nodes = [[f"  node {node or 'head'}", *[""] * 6, *usage_cells(run, node, now_ms)] for node in nodes]
    return [cells(run, now_ms), *of_nodes]


def fitting(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns that fit. At least two are kept; their words wrap if they do not fit."""
    widths = [max(len(words) for words in column) for column in zip(HEADINGS, *rows, strict=True)]
    kept: list[int] = []
    for number in map(HEADINGS.index, BY_WEIGHT):
        if len(kept) < 2 or sum(widths[other] + GAP for other in kept) + widths[number] <= width:
            kept.append(number)
    return sorted(kept)


def cells(run: LiveRun, now_ms: int) -> list[str]:
    rate = run.signs.last_rate
    of = f" of {run.schedule.epochs}" if run.schedule.epochs else ""
    epoch = f"{epoch_text(run.epoch)}{of}" if run.epoch else ""
    return [
        run.name, run.state, epoch, "" if rate is None else f"{rate:,.0f}",
        "" if run.loss is None else significant(run.loss, 4), run.metrics, run.left, *usage_cells(run, HEAD, now_ms),
    ]  # fmt: skip


def usage_cells(run: LiveRun, node: str, now_ms: int) -> list[str]:
    """How busy a node is; empty after the run's end, and for a node that is silent."""
    usage = {} if run.has_ended or run.silent_sec(node, now_ms) else run.usage(node)
    cpu = usage.get("run_cpu_percentage", usage.get("cpu_utilization_percentage"))
    values = (usage.get("gpu_utilization_percentage"), usage.get("gpu_memory_usage_percentage"), cpu)
    return ["" if value is None else f"{value:.0f}" for value in values]


def line(run: LiveRun, now_ms: int) -> str:
    """`NAME: training, epoch 3 of 10, 1,362 samples/s, loss 0.31, 0:42 left at most, CPU 97 %; warnings`."""
    _, state, epoch, rate, loss, evaluated, left, gpu, memory, cpu = cells(run, now_ms)
    parts = [
        state, epoch and f"epoch {epoch}", rate and f"{rate} samples/s", loss and f"loss {loss}", evaluated,
        left and f"{left} left at most", gpu and f"GPU {gpu} %", memory and f"GPU memory {memory} %",
        cpu and f"CPU {cpu} %", *other_nodes(run, now_ms),
    ]  # fmt: skip
    warnings = "".join(f"; {words}" for words in run.warnings(now_ms))
    return f"{run.name}: {', '.join(part for part in parts if part)}{warnings}"


def other_nodes(run: LiveRun, now_ms: int) -> Iterable[str]:
    for node in run.nodes:
        gpu, _, cpu = usage_cells(run, node, now_ms)
        words = [f"GPU {gpu} %" if gpu else "", f"CPU {cpu} %" if cpu else ""]
        if node != HEAD and any(words):
            yield f"node {node} {' '.join(word for word in words if word)}"


def watch(folder: Path, console: Console, every_sec: float, once: bool = False) -> list[LiveRun]:
    """Draw a run or a sweep until its end or Ctrl-C; returns the runs as they are then."""
    runs: dict[Path, LiveRun] = {}
    can_redraw = console.is_terminal and not console.is_dumb_terminal
    drawing = Live(console=console, auto_refresh=False) if can_redraw else nullcontext()
    with drawing as live, suppress(KeyboardInterrupt):
        while True:
            runs = live_runs(folder, runs)
            for run in runs.values():
                run.read()
            if live:
                drawn = table(list(runs.values()), run_folder.now_ms(), console.width, console.height)
                live.update(drawn, refresh=True)
            else:
                print_lines(console, runs.values())
            if once or has_ended(folder, runs.values()):
                break
            time.sleep(every_sec)
    return list(runs.values())


def print_lines(console: Console, runs: Iterable[LiveRun]) -> None:
    """Print a line for each run; after a run's end, one last line."""
    for run in runs:
        if not run.is_reported:
            console.print(line(run, run_folder.now_ms()), soft_wrap=True)
            run.is_reported = run.has_ended


def has_ended(folder: Path, runs: Iterable[LiveRun]) -> bool:
    """Whether a run, or a sweep with all its runs, has ended; nobody mends a damaged result."""
    if not all(run.has_ended for run in runs):
        return False
    try:
        return run_folder.read_result(folder) is not None or any(run.folder == folder for run in runs)
    except OSError:
        return False
    except ValueError:
        return True
