"""The table that watch draws: on narrow and low terminals, on those that cannot redraw, and with nodes that died."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.support import studied
from tests.tracking.jobs.watch.test_watch import training
from tracking.jobs.watch import LiveRun, screen
from tracking.record import node_records, run_folder


def drawn(runs: Path, width: int, height: int) -> list[str]:
    """The lines of the table on a terminal of this size."""
    live = [LiveRun(path) for path in sorted(runs.iterdir())]
    for run in live:
        run.read()
    written = io.StringIO()
    console = Console(file=written, width=width, height=height, force_terminal=True, color_system=None)
    console.print(screen.table(live, run_folder.now_ms(), width, height))
    return written.getvalue().splitlines()


@pytest.mark.parametrize(
    ("width", "headings"),
    [
        (40, ["run", "state"]),
        (55, ["run", "state", "epoch", "loss"]),
        (80, ["run", "state", "epoch", "samples/s", "loss", "left at most"]),
        (200, [*screen.HEADINGS]),
    ],
)
def test_a_narrow_terminal_has_fewer_columns_and_no_broken_words(runs: Path, width: int, headings: list[str]) -> None:
    training(runs)
    heading, row = (text.split("  ") for text in drawn(runs, width, 24))
    assert [word.strip() for word in heading if word.strip()] == headings
    assert row[:2] == ["vgg-digits-fp32-1gpu-seed1", "evaluating"]


@pytest.mark.parametrize("height", [4, 24, 40])
def test_a_low_terminal_shows_as_many_jobs_as_fit_and_counts_the_others(runs: Path, height: int) -> None:
    long_ago = run_folder.now_ms() - 600_000
    for seed in range(1, 41):
        training(runs, seed=seed, start_ms=long_ago)  # and a warning each: they are silent
    lines = drawn(runs, 100, height)
    jobs = [text for text in lines if text.startswith("vgg") and "evaluating" in text]
    assert len(lines) <= height
    assert jobs
    assert f"and {40 - len(jobs)} more" in [text.strip() for text in lines]
    assert any("silent for" in text for text in lines)


def test_a_terminal_that_cannot_redraw_gets_lines_and_no_color_is_none(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = training(runs, start_ms=run_folder.now_ms() - 600_000)
    for variables, has_lines in (({"TERM": "dumb"}, True), ({"TERM": "xterm-256color", "NO_COLOR": "1"}, False)):
        written = io.StringIO()
        console = Console(file=written, width=160, force_terminal=True, _environ=variables)
        screen.watch(folder, console, 0.01, once=True)
        assert (f"{folder.name}: evaluating" in written.getvalue()) is has_lines
        assert "silent for" in written.getvalue()
        assert "\x1b[33m" not in written.getvalue()


def test_a_node_that_died_is_said_to_be_silent_and_its_last_usage_is_not_shown_as_its_present_one(runs: Path) -> None:
    folder, now_ms = training(runs), run_folder.now_ms()
    log = studied.Writer(folder / node_records.file_of(run_folder.JOURNAL, "b"), now_ms - 200_000)
    log.add("metrics", 0.0, values={"system/b/cpu_utilization_percentage": 71.0})
    (run,) = (LiveRun(path) for path in runs.iterdir())
    run.read()
    assert run.warnings(now_ms) == ["node b: silent for 3:20"]
    assert screen.usage_cells(run, "b", now_ms) == ["", "", ""]
    assert "71" in screen.usage_cells(run, "b", now_ms - 190_000)
    assert screen.usage_cells(run, "", now_ms)[0] == "92"
