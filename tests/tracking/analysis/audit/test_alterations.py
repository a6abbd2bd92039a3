"""`report --check` sees every value of a report's files that is altered, but the words that docs/report.md names."""

from __future__ import annotations

import csv
import functools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import ROOT
from tests.support.stack_study import A100, H100, STUDY, report_of, write_study
from tests.support.studied import CLOCKS, SWEEP, config, make_run, make_sweep
from tests.tracking.analysis.audit import alterations
from tracking.analysis.audit import audit, audit_folder
from tracking.analysis.audit.audit import WORDS
from tracking.analysis.audit.evidence import Evidence
from tracking.analysis.audit.journals import JournalFigures
from tracking.analysis.audit.pictures import audit_pictures
from tracking.analysis.audit.trees import AuditResult
from tracking.analysis.published import comparison
from tracking.analysis.report import page, report
from tracking.analysis.report.pictures.plots import Plotter
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.measure.bottleneck import explain


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two settings of two and three runs, of which one missed its target; a killed run, and an attempt that failed."""
    root = tmp_path_factory.mktemp("small")
    sweep = make_sweep(root / "runs", SWEEP, "sqlite:///none.db", 7)

    def add(gpus: int, seed: int, **options: Any) -> None:
        asked = config(gpus=gpus, seed=seed, price=3.6 * gpus)
        explain(make_run(sweep, asked, "sqlite:///none.db", fingerprint=CLOCKS, **options))

    add(1, 1, step_sec=0.10)
    add(1, 2, step_sec=0.12)
    add(2, 1, step_sec=0.05)
    add(2, 2, step_sec=0.06)
    add(2, 3, step_sec=0.06, accuracies=(0.1, 0.2, 0.3))
    add(2, 4, failure="signal:9")
    add(1, 3, failure="oom", start_ms=1)
    add(1, 3, step_sec=0.11, start_ms=2)
    return root


@pytest.fixture(autouse=True)
def journals_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracking.analysis.audit.selection.JournalFigures", functools.cache(JournalFigures))


@pytest.fixture(scope="module")
def folder(root: Path) -> Path:
    """A report's files, not to be changed."""
    store = FolderRuns([root / "runs"])
    made = report.make(store, [SWEEP], store.find([SWEEP]), ["gpus"])
    comparison.add_published(made, ["fashion_mnist"])
    page.write(made, root / "report")
    return root / "report"


def read(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return content


def test_the_files_of_a_report_agree_with_the_run_folders(root: Path, folder: Path) -> None:
    checked = audit_folder(folder, [root / "runs"])
    assert checked.differences == []
    assert (checked.num_runs, len(read(folder)["left_out"])) == (7, 1)
    assert {table["kind"] for table in read(folder)["tables"]} == {
        "settings", "limits", "utilization", "pairs", "speed-ups", "excluded", "beside", "published",
    }  # fmt: skip


@pytest.mark.parametrize("part", ["quick", pytest.param("all", marks=pytest.mark.slow)])
def test_every_value_of_the_json_that_is_altered_is_seen(root: Path, folder: Path, part: str) -> None:
    others = list(alterations.altered(read(folder)))
    assert len(others) > 2000
    some = others if part == "all" else others[::23]
    unseen = {what for what, other in some if not audit(other, [root / "runs"]).differences}
    assert unseen <= {
        f"('selectors', 0): {SWEEP}: twice",
        "('with_neighbours',): False: True",  # No run had any.
        # These need not be there.
        "('tables', 6): {'title': 'Printed in the text: fashion_mnist', 'kind': 'pub: dropped",
        "('tables', 7): {'title': 'vgg on digits to accuracy 0.9, beside published f: dropped",
    }


@pytest.mark.slow
def test_every_value_of_a_study_of_stacks_that_is_altered_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plotter, "plots", lambda self: iter(()))
    write_study(tmp_path, "sqlite:///none.db", 2, {H100: 0.002, A100: 0.2}, ["12.4", "13.0"])
    content = json.loads(json.dumps(report_of(tmp_path).plain()))
    assert content["selectors"] == [STUDY]
    assert audit(content, [tmp_path]).differences == []
    others = list(alterations.altered(content))[::29]
    assert [what for what, other in others if not audit(other, [tmp_path]).differences] == []


def test_a_whole_part_that_is_missing_or_new_is_seen(root: Path, folder: Path) -> None:
    content = read(folder)
    for key in content.keys() - {*WORDS}:
        less = {name: value for name, value in content.items() if name != key}
        assert audit(less, [root / "runs"]).differences, key
    (sentence,) = audit(content | {"scores": [1.0]}, [root / "runs"]).differences
    assert sentence == "scores: a part of this name cannot be recomputed"


def test_every_cell_of_the_csv_that_is_altered_is_seen(root: Path, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    rows = list(csv.reader((folder / "report.csv").read_text().splitlines()))
    others = [
        [*rows[:place], [*row[:column], changed, *row[column + 1 :]], *rows[place + 1 :]]
        for place, row in enumerate(rows)
        for column, cell in enumerate(row)
        for changed in (f"{cell}1", "", *alterations.digits(cell))
        if changed != cell
    ]
    others += [[*rows[:place], *rows[place + 1 :]] for place in range(len(rows))] + [[*rows, rows[-1]], [*rows[::-1]]]
    content = read(folder)
    for other in others[::3]:
        with (tmp_path / "report.csv").open("w", newline="") as file:
            csv.writer(file).writerows(other)
        assert named(content, tmp_path / "report.csv"), other


def named(content: dict[str, Any], path: Path) -> bool:
    """Whether a file that differs from the JSON is named; without the JSON's own check, which others do."""
    from tracking.analysis.audit import files

    tally = AuditResult()
    compare = {".csv": files._csv, ".md": files._markdown, ".html": files._page}[path.suffix]
    compare(content, path.read_text(), tally)
    return any(words.startswith(f"{path.name}, row") for words in tally.differences)


@pytest.mark.parametrize(("name", "pattern"), [("report.md", r"^\| (?!---).*"), ("report.html", r"<t[hd][^>]*>[^<]+")])
def test_every_number_in_the_tables_of_the_pages_that_is_altered_is_seen(
    root: Path, folder: Path, tmp_path: Path, name: str, pattern: str
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    text, content = (folder / name).read_text(), read(folder)
    cells = list(re.finditer(pattern, text, re.MULTILINE))
    assert len(cells) > 20
    for cell in cells:
        for changed in [*alterations.digits(cell[0].partition(">")[2] or cell[0])][:3]:
            start = cell.end() - len(cell[0].partition(">")[2] or cell[0])
            (tmp_path / name).write_text(text[:start] + changed + text[cell.end() :])
            assert named(content, tmp_path / name), changed
    (tmp_path / name).write_text(text)
    assert audit_folder(tmp_path, [root / "runs"]).differences == []
    (tmp_path / name).unlink()
    assert audit_folder(tmp_path, [root / "runs"]).differences == [f"{name}: is missing beside report.json"]


@pytest.mark.parametrize("name", ["accuracy", "utilisation", "throughput", "cost"])
def test_every_number_behind_a_picture_that_is_altered_is_seen(
    root: Path, folder: Path, tmp_path: Path, name: str
) -> None:
    """Curves begin at the start of the clock and go through what the journal has."""
    content = read(folder)
    evidence = Evidence(content, [root / "runs"])
    picture = json.loads((folder / f"report-1-{name}.json").read_text())
    lines = [
        (panel, line)
        for panel in picture["panels"]
        if "key" in panel or name == "cost"
        for line in panel["lines"]
    ]  # fmt: skip
    assert lines
    for panel, line in lines:
        for column in [key for key, values in line.items() if isinstance(values, list)]:
            before = line[column]
            for other in (before[:-1], [*before, 1.0], [value + 0.5 for value in before]):
                line[column] = other
                (tmp_path / f"report-1-{name}.json").write_text(json.dumps(picture))
                tally = AuditResult()
                audit_pictures(tmp_path, content, evidence, tally)
                assert tally.differences, (panel["y"], line["name"], column)
            line[column] = before
    del picture["panels"]
    (tmp_path / f"report-1-{name}.json").write_text(json.dumps(picture))
    tally = AuditResult()
    audit_pictures(tmp_path, content, evidence, tally)
    assert "does not hold a picture's data" in tally.differences[0]


def test_a_csv_of_doubled_numbers_is_seen(root: Path, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    header, *rows = list(csv.reader((folder / "report.csv").read_text().splitlines()))
    place = header.index("mean")
    doubled = [[*row[:place], str(2 * float(row[place])), *row[place + 1 :]] for row in rows]
    with (tmp_path / "report.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *doubled])
    assert len(audit_folder(tmp_path, [root / "runs"]).differences) == len(rows)


def test_the_words_that_are_not_checked_are_named_on_the_page() -> None:
    section = (ROOT / "docs/report.md").read_text().partition("## Exactly the same again")[2].partition("\n## ")[0]
    assert set(WORDS) == set(alterations.WORDS)
    for words in ("sentences", "titles", "notes", "pictures", "published"):
        assert words in section, words
