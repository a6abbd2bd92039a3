"""What the console shows on outputs that lack characters, and that nothing it draws ends a run."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys

import pytest
from rich.table import Table

from tests.support.commands import ROOT
from tracking.base.console import Drawing, LastingStream, make_console


def output(monkeypatch: pytest.MonkeyPatch, encoding: str) -> io.BytesIO:
    """What arrives at a standard output of this encoding."""
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding=encoding, write_through=True))
    return printed


@pytest.mark.parametrize("columns", ["20", "80"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_an_output_cannot_show_is_replaced(monkeypatch: pytest.MonkeyPatch, encoding: str, columns: str) -> None:
    printed = output(monkeypatch, encoding)
    monkeypatch.setenv("COLUMNS", columns)
    table = Table("time to accuracy (s)", "run folder")
    table.add_row("24.44 ± 0.34", "runs/" + "a-long-name-" * 20)
    for number in range(8):
        table.add_column(f"column {number}", no_wrap=True)
    console = make_console()
    console.print(table)
    console.print("≥ 27.4 ± 0.3 s … 日本 \ud800", soft_wrap=True)
    lines = printed.getvalue().decode(encoding).splitlines()
    assert len({len(line) for line in lines[:-1]}) == 1, "the table's lines are of one length"
    plain = lines[-1].replace("±", "+-")  # latin-1 has it
    assert plain == ">= 27.4 +- 0.3 s ~ ?? ?"


def test_a_stream_that_has_no_such_character_is_written_to_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = output(monkeypatch, "ascii")
    print("a ≤ b", file=LastingStream(sys.stdout))  # type: ignore[arg-type]
    assert printed.getvalue() == b"a <= b\n"


def test_what_cannot_be_drawn_is_said_once_and_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    drawing = Drawing(make_console(), "the table is not shown")
    for key in ("accuracy", "loss"):
        with drawing:
            raise KeyError(key)
    assert capsys.readouterr().out == "note: the table is not shown: KeyError: 'accuracy'\n"


def test_a_signal_that_stops_the_launcher_is_not_held_back() -> None:
    with pytest.raises(KeyboardInterrupt), Drawing(make_console(), "the table is not shown"):
        raise KeyboardInterrupt


@pytest.mark.slow  # it starts processes
@pytest.mark.parametrize("closed", ["0<&-", ">&-", "2>&-", "0<&- >&- 2>&-"])
def test_a_closed_standard_stream_is_opened_before_a_file_takes_its_place(closed: str) -> None:
    code = (
        "import os; from tracking.base.console import open_closed_streams; open_closed_streams();"
        " print(1, flush=True); assert os.open(os.devnull, os.O_RDONLY) > 2"
    )
    command = f"exec {shlex.join([sys.executable, '-c', code])} {closed}"
    assert subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, check=False).returncode == 0
