"""A damaged file of a run is named, by the check of a report and by the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.studied import SWEEP, config, make_run, make_sweep
from tracking.analysis.audit.journals import JournalFigures
from tracking.analysis.report import report
from tracking.analysis.results.folder_runs import FolderRuns

SERVER = "sqlite:///none.db"


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    sweep = make_sweep(tmp_path, SWEEP, SERVER, 4)
    return [make_run(sweep, config(gpus=gpus, seed=seed), SERVER) for gpus in (1, 2) for seed in (1, 2)]


@pytest.mark.parametrize("content", [b'{"status": "fin', b"", b"\xff\xfe", b"[]", b"3"])
def test_the_check_names_a_damaged_result(runs: list[Path], content: bytes) -> None:
    (runs[0] / "result.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"result\.json: is damaged.* Next: restore the file"):
        _ = JournalFigures(runs[0]).result


@pytest.mark.parametrize("content", [b"seed: [1", b"\xff\xfe", b"- 1"])
def test_the_check_names_a_damaged_config(runs: list[Path], content: bytes) -> None:
    (runs[0] / "config.yaml").write_bytes(content)
    with pytest.raises(ValueError, match=r"config\.yaml: is damaged.* Next: restore the file"):
        _ = JournalFigures(runs[0]).config


def test_the_check_passes_over_lines_of_a_journal_that_are_no_rows(runs: list[Path]) -> None:
    rows = JournalFigures(runs[0]).rows
    with (runs[0] / "journal.jsonl").open("ab") as journal:
        journal.write(b'[1, 2]\n\xff\xfe\n3\nnull\n"a"\n')
    assert JournalFigures(runs[0]).rows == rows


@pytest.mark.parametrize("content", ["dataset: [1", "", "- 1"])
def test_a_report_names_a_damaged_config_and_compares_the_others(
    runs: list[Path], tmp_path: Path, content: str
) -> None:
    (runs[3] / "config.yaml").write_text(content)
    store = FolderRuns([tmp_path])
    warnings = report.make(store, [SWEEP], store.find([SWEEP])).warnings
    (words,) = [words for words in warnings if "config.yaml" in words]
    assert "config.yaml of 1 run is damaged, and was not compared (" in words
    assert not [words for words in warnings if "differ in" in words]
