"""Files that a command cannot read or write: the file, why, and a next step that fits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.studied import config, make_run, make_sweep
from tracking.__main__ import main
from tracking.record import files, journal


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the runs of two sweeps; the first run's config.yaml is a link, which is not followed."""
    monkeypatch.chdir(tmp_path)
    for name in ("base", "slow"):
        sweep = make_sweep(tmp_path / "runs", name, "sqlite:///none.db", 2)
        for seed in (1, 2):
            make_run(sweep, config(seed=seed), "sqlite:///none.db")
    path = next(tmp_path.glob("runs/base/*seed1/config.yaml"))
    path.rename(tmp_path / "config.yaml")
    path.symlink_to(tmp_path / "config.yaml")
    (tmp_path / "file").write_text("")
    (tmp_path / "report").mkdir()
    (tmp_path / "report/report.json").symlink_to("report.json")
    return tmp_path


BASE = ["base", "--from-folders"]
GATE = ["gate", "--from-folders", "--baseline", "base", "--candidate", "slow", "--max-slowdown", "3%"]
READ = [
    (
        ["report", *BASE, "--by", "model.optimizer.lr"],
        r"seed1/config.yaml: is a link, which is not followed. Next: put",
    ),
    (["cache", "--import", "file/../base"], "--import file/../base: no such file. Next: give one that --export made"),
    (["sync", ".", "nosuch"], "refused: nosuch: no run found. Next: give your runs_dir"),
    (["audit", "report"], "report/report.json: Too many levels of symbolic links. Next: put the file itself there"),
    (
        ["import", "nosuch", "file/x"],
        "nosuch: No such file or directory. Next: check this path; file/x: Not a directory",
    ),
]
WRITTEN = [
    (
        ["report", "slow", "--from-folders", "--out", "file/x"],
        "file/x: Not a directory. Next: give --out a folder that you can write to",
    ),
    (["report", "--reference-only", "dgx1", "--out", "file"], "file: File exists. Next: give --out a folder"),
    ([*GATE, "--junit", "none/x"], "none/x: No such file or directory. Next: give --junit a file"),
    ([*GATE, "--markdown", "file/x"], "file/x: Not a directory. Next: give --markdown a file"),
]


@pytest.mark.parametrize(("words", "said"), [*READ, *WRITTEN])
def test_a_file_that_cannot_be_read_or_written_is_named_with_the_next_step(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(words) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert ("--out" in errors) == ("--out" in words)


def test_a_gate_that_cannot_read_a_file_still_writes_its_files(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error", "runs/base/journal.jsonl")

    monkeypatch.setattr("tracking.analysis.compare.gate.judge", broken)
    assert main([*GATE, "--markdown", "gate.md"]) == 2
    said = "runs/base/journal.jsonl: Input/output error. Next: check the file and its disk"
    assert said in capsys.readouterr().err
    assert said in (here / "gate.md").read_text()


def test_an_error_of_a_file_that_was_opened_names_it() -> None:
    """Linux opens a process's memory and cannot read its first page."""
    path = Path(f"/proc/{os.getpid()}/mem")
    for read in (files.read_text, lambda path: list(journal.read(path))):
        with pytest.raises(OSError, match="Input/output error") as raised:
            read(path)
        assert raised.value.filename == str(path)
