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

from tracking.jobs.watch.live_run import HEAD, LiveRun, live_runs
from tracking.record import run_folder

MOST_ROWS = 30
HEADINGS = ("run", "state", "epoch", "samples/s", "loss", "evaluated", "left at most", "GPU %", "memory %", "CPU %")


def table(runs: Sequence[LiveRun], now_ms: int) -> RenderableType:
    """The table of runs: training ones first, then ended ones; a run of several nodes has a row for each node."""
    ordered = sorted(runs, key=lambda run: (run.has_ended, run.folder.name))
    shown = ordered[:MOST_ROWS]
    grid = Table(box=None, pad_edge=False)
    for number, heading in enumerate(HEADINGS):
        grid.add_column(heading, justify="left" if number < 2 else "right", overflow="fold")
    for run in shown:
        grid.add_row(*cells(run))
        if len(run.nodes) > 1:
            for node in run.nodes:
                grid.add_row(f"  node {node or 'head'}", *[""] * 6, *usage_cells(run, node), style="dim")
    parts: list[RenderableType] = [grid]
    if len(ordered) > len(shown):
        parts.append(Text(f"and {len(ordered) - len(shown)} more"))
    parts += [Text(f"{run.name}: {words}", style="yellow") for run in shown for words in run.warnings(now_ms)]
    return Group(*parts)


def cells(run: LiveRun) -> list[str]:
    rate = run.signs.last_rate
    of = f" of {run.epochs}" if run.epochs else ""
    return [
        run.name, run.state, f"{run.epoch:g}{of}" if run.epoch else "", "" if rate is None else f"{rate:,.0f}",
        "" if run.loss is None else f"{run.loss:.4g}", run.metrics, run.left, *usage_cells(run, HEAD),
    ]  # fmt: skip


def usage_cells(run: LiveRun, node: str) -> list[str]:
    usage = {} if run.has_ended else run.usage(node)
    cpu = usage.get("run_cpu_percentage", usage.get("cpu_utilization_percentage"))
    values = (usage.get("gpu_utilization_percentage"), usage.get("gpu_memory_usage_percentage"), cpu)
    return ["" if value is None else f"{value:.0f}" for value in values]


def line(run: LiveRun, now_ms: int) -> str:
    """`NAME: training, epoch 3 of 10, 1,362 samples/s, loss 0.31, 0:42 left at most, CPU 97 %; warnings`."""
    _, state, epoch, rate, loss, evaluated, left, gpu, memory, cpu = cells(run)
    parts = [
        state, epoch and f"epoch {epoch}", rate and f"{rate} samples/s", loss and f"loss {loss}", evaluated,
        left and f"{left} left at most", gpu and f"GPU {gpu} %", memory and f"GPU memory {memory} %",
        cpu and f"CPU {cpu} %", *other_nodes(run),
    ]  # fmt: skip
    warnings = "".join(f"; {words}" for words in run.warnings(now_ms))
    return f"{run.name}: {', '.join(part for part in parts if part)}{warnings}"


def other_nodes(run: LiveRun) -> Iterable[str]:
    for node in run.nodes:
        gpu, _, cpu = usage_cells(run, node)
        words = [f"GPU {gpu} %" if gpu else "", f"CPU {cpu} %" if cpu else ""]
        if node != HEAD and any(words):
            yield f"node {node} {' '.join(word for word in words if word)}"


def watch(folder: Path, console: Console, every_sec: float, once: bool = False) -> list[LiveRun]:
    """Draw a run or a sweep until its end or Ctrl-C; returns the runs as they are then."""
    runs: dict[Path, LiveRun] = {}
    drawing = Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext()
    with drawing as live, suppress(KeyboardInterrupt):
        while True:
            runs = live_runs(folder, runs)
            for run in runs.values():
                run.read()
            if live:
                live.update(table(list(runs.values()), run_folder.now_ms()), refresh=True)
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
    """Whether a run, or a sweep with all its runs, has ended."""
    with suppress(OSError, ValueError):
        return run_folder.read_result(folder) is not None and all(run.has_ended for run in runs)
    return False
