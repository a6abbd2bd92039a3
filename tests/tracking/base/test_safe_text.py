"""What strangers write into runs neither commands a terminal nor becomes HTML, a link or a picture."""

from __future__ import annotations

import csv
import io
import re
import shlex
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.text import Text

from tests.support.studied import START_MS, SWEEP, config, make_run, make_sweep
from tracking.__main__ import main
from tracking.analysis.audit import audit_folder
from tracking.analysis.results.table import Table
from tracking.base.console import make_console
from tracking.base.safe_text import in_csv, in_markdown, path_to_type, visible
from tracking.cli import sync
from tracking.jobs.follow import Outcome
from tracking.jobs.follow.uploads import sync_command
from tracking.jobs.queues.detaching import follow_command
from tracking.record import Failure, run_folder
from tracking.request.refusal import path_option

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e<img src=x onerror=alert(1)>[me](http://e.org)![p](http://e.org/p)|`x`"
SIGNS = "<>!&[]()|`\\#*_~-:/ax \n\r\t\x1b\x9b\u202e"
PIECES = ("<div", "<script", "<!--", "<?", "<!A", "</p>", "```", "~~~", "![", "](", "http://", "&lt;", "<a b=c>")
MARKS = st.lists(st.sampled_from([*SIGNS, *PIECES])).map("".join)
ACTIVE = {"html_block", "html_inline", "link_open", "image", "code_inline", "fence"}


def active(text: str) -> set[str]:
    """The markup in a Markdown text."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    kinds = {token.type for token in tokens} | {child.type for token in tokens for child in token.children or []}
    return kinds & ACTIVE


def without_folds(text: str) -> str:
    """A report's Markdown without the two lines of its own by which details are folded."""
    lines = text.splitlines(keepends=True)
    return "".join(
        line for line in lines if not re.fullmatch(r"<details><summary>[\w :]+</summary>|</details>", line.strip())
    )


def commands(text: str) -> list[str]:
    """The characters of a text that a terminal would act on."""
    return [letter for letter in text if (ord(letter) < 32 or 127 <= ord(letter) < 160) and letter not in "\n\t"]


@given(st.text() | MARKS)
def test_no_character_commands_the_terminal(text: str) -> None:
    assert not commands(visible(text))
    assert visible(visible(text)) == visible(text)


@given(MARKS)
def test_in_markdown_it_is_words_alone(text: str) -> None:
    assert not active(f"before {in_markdown(text)} after")
    assert not active(in_markdown(text)), "at the start of a line, too"
    table = Table("t", {"a": "", "b": ""}, [[text, "end"]]).markdown()
    assert not active(table)
    cells = [token for token in MarkdownIt("commonmark").enable("table").parse(table) if token.type == "td_open"]
    assert len(cells) == 2


def test_words_of_ours_stay_as_they_are() -> None:
    assert in_markdown("time/to_accuracy_sec: 12.3 ± 0.4 s (n = 3)") == "time/to_accuracy_sec: 12.3 ± 0.4 s (n = 3)"


FORMULAS = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-1+cmd|' /C calc'!A1",
    "@SUM(A1)",
    "\t=1",
    " =1",
    "\n=1",
    "\uff1d1",
    "x;=1",
    "a\n-b",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_is_a_formula_in_a_spreadsheet(text: str) -> None:
    """Also where a semicolon separates cells, as where decimals have a comma."""
    ((cell,),) = csv.reader(io.StringIO(in_csv([[text]])))
    assert cell.replace("'", "") == text.replace("'", "")
    for part in re.split("[;\n]", cell):
        assert not part.lstrip().startswith(("=", "+", "-", "@", "\uff1d"))


@pytest.mark.parametrize("text", ["-0.5", "+3 %", "-1.2 ± 0.3", "-1,089.5 ± 2", "1e-3", "-2.5E+10", "-", "a-b", "x=1"])
def test_numbers_and_words_stay_as_they_are_in_a_spreadsheet(text: str) -> None:
    assert in_csv([[text, -0.5, None, 3]]) == (f'"{text}",' if "," in text else f"{text},") + "-0.5,,3\r\n"


@given(st.text() | MARKS)
def test_a_csv_holds_no_command(text: str) -> None:
    rows = in_csv([[text, text]])
    assert not commands(rows.replace("\r\n", ""))
    first, second = next(csv.reader(io.StringIO(rows, newline="")))
    assert first == second


def test_sync_says_one_line_a_folder_whatever_that_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    """Else a folder's name could say that another one is complete."""
    sync.show(Outcome(Path("runs/a\ncomplete: runs/b"), "failed", "for\ntwo reasons"))
    assert capsys.readouterr().out == "failed: runs/a\\ncomplete: runs/b for\\ntwo reasons\n"


def test_the_console_lets_no_command_through(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    console = make_console()
    console.print(EVIL)
    console.print(Text(EVIL), style="bold")
    console.print(Table(EVIL, {EVIL: ""}, [[EVIL]], note=EVIL).rich())
    assert not commands(stream.getvalue())
    assert "\\x1b]0;owned" in stream.getvalue()


@pytest.mark.slow
def test_what_a_run_says_is_harmless_in_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = "sqlite:////nowhere/x.db"
    sweep = make_sweep(tmp_path / "runs", SWEEP, uri, 4)
    for seed in (1, 2, 3):
        tags = {"env.gpu": f"=1+{EVIL}" if seed > 1 else "NVIDIA H200", "env.driver": EVIL, EVIL: EVIL}
        folder = make_run(sweep, config(seed=seed), uri, start_ms=START_MS + 1000 * seed, tags=tags)
        if seed == 3:
            failed = run_folder.Result("failed", failure=Failure("error", EVIL, EVIL))
            run_folder.write_result(folder, failed)
    runs = str(tmp_path / "runs")
    words = [
        ["report", "--from-folders", "--runs-dir", runs, SWEEP, "--by", "env.gpu", "--out", str(tmp_path / "out")],
        ["diff", "--from-folders", "--runs-dir", runs, *(path.name for path in sorted(sweep.glob("*-seed[12]*")))],
        ["sync", runs],
    ]
    for command in words:
        main(command)
        printed = capsys.readouterr()
        assert not commands(printed.out + printed.err), command
        assert "Traceback" not in printed.err
    for name in ("report.csv", "report.html"):
        assert not commands((tmp_path / "out" / name).read_text()), name
    with (tmp_path / "out/report.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert any(cell.startswith("'=1+") for cell in cells)
    assert not any(cell.startswith("=") for cell in cells)
    assert not audit_folder(tmp_path / "out", [tmp_path / "runs"]).differences
    text = (tmp_path / "out" / "report.md").read_text()
    assert "owned" in text
    assert not commands(text)
    pictures = re.findall(r"^!\[.*\]\(report-[a-z_0-9-]+\.png\)$", text, re.MULTILINE)
    assert pictures
    for picture in pictures:
        text = text.replace(picture, "")
    assert not active(without_folds(text))


def test_a_path_outside_the_current_folder_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert path_to_type(tmp_path / "here" / "runs" / "a") == "runs/a"
    assert path_to_type(tmp_path / "elsewhere" / "a") == f"{tmp_path}/elsewhere/a"


def test_a_path_in_a_command_is_one_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("runs of 'é' 50%=1")
    assert shlex.split(sync_command([folder]))[-1] == str(folder)
    assert shlex.split(follow_command(folder))[-1] == str(folder)
    [word] = shlex.split(path_option("resume", str(folder)))
    override = OverridesParser.create().parse_overrides([word])[0]
    assert (override.key_or_group, str(override.value())) == ("resume", str(folder))
    assert path_option("resume", "runs/a-1") == "resume=runs/a-1"
