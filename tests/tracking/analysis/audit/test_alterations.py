"""`report --check` sees every value of a report's files that is altered, but the words that docs/report.md names."""

from __future__ import annotations

import csv
import functools
import importlib
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support import few_runs
from tests.support.commands import ROOT
from tests.support.stack_study import A100, H100, STUDY, report_of, write_study
from tests.support.studied import CLOCKS, START_MS, SWEEP, Writer, config, make_run, make_sweep, measure_place
from tests.tracking.analysis.audit import alterations
from tests.tracking.analysis.audit.alterations import Alteration
from tracking.analysis.audit import audit, audit_folder, figures
from tracking.analysis.audit.audit import WORDS
from tracking.analysis.audit.evidence import AuditResult, Evidence, trees
from tracking.analysis.audit.journals import JournalFigures
from tracking.analysis.audit.report_files import audit_pictures
from tracking.analysis.published import comparison
from tracking.analysis.report import page, report
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.measure.bottleneck import explain
from tracking.record import documents


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two settings of two and three runs. One run missed its target, one was killed, and one attempt failed."""
    root = tmp_path_factory.mktemp("small")
    sweep = make_sweep(root / "runs", SWEEP, "sqlite:///none.db", 7)

    def add(gpus: int, seed: int, **options: Any) -> None:
        asked = config(gpus=gpus, seed=seed, price=3.6 * gpus)
        run = make_run(sweep, asked, "sqlite:///none.db", fingerprint=CLOCKS, **options)
        measure_place(run)
        limits = explain(run)
        result = json.loads((run / "result.json").read_text())
        documents.write_json(run / "result.json", result | ({"bottleneck": limits} if limits else {}))

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
    monkeypatch.setattr("tracking.analysis.audit.evidence.selection.JournalFigures", functools.cache(JournalFigures))


@pytest.fixture(scope="module")
def folder(root: Path) -> Path:
    """A report's files, not to be changed."""
    store = FolderRuns([root / "runs"])
    made = report.make(store, [SWEEP], store.find([SWEEP]), ["gpus"])
    report.add_asked(made, ["4s", "1s"], {"gpus": "1"})
    comparison.add_published(made, ["fashion_mnist"])
    page.write(made, root / "report")
    return root / "report"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of stacks, and its report's files."""
    root = tmp_path_factory.mktemp("study")
    write_study(root / "runs", "sqlite:///none.db", 2, {H100: 0.002, A100: 0.2}, ["12.4", "13.0"])
    page.write(report_of(root / "runs"), root / "report")
    assert audit_folder(root / "report", [root / "runs"]).differences == []
    return root


def read(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return content


def test_the_files_of_a_report_agree_with_the_run_folders(root: Path, folder: Path) -> None:
    checked = audit_folder(folder, [root / "runs"])
    assert checked.differences == []
    assert (checked.num_runs, len(read(folder)["left_out"])) == (7, 1)
    assert {table["kind"] for table in read(folder)["tables"]} == {
        "ranking", "settings", "metrics", "possible", "limits", "utilization",
        "pairs", "speed-ups", "excluded", "beside", "published", "within", "over",
    }  # fmt: skip


def unseen(report: dict[str, Any], roots: list[Path], some: Iterable[Alteration]) -> set[str]:
    return {str(each) for each in some if not audit(each.made(report), roots).differences}


@pytest.mark.parametrize("part", ["quick", pytest.param("all", marks=[pytest.mark.slow, pytest.mark.exhaustive])])
def test_every_value_of_the_json_that_is_altered_is_seen(root: Path, folder: Path, part: str) -> None:
    content = read(folder)
    some = alterations.sampled(alterations.alterations(content))
    assert len(some) > 300
    assert unseen(content, [root / "runs"], some[:: 1 if part == "all" else 12]) <= {
        f"('selectors', 0): {SWEEP}: twice",
        "('with_neighbours',): False: True",  # No run had any.
        # These need not be there.
        "('tables', 11): {'title': 'Printed in the text: fashion_mnist', 'kind': 'pub: dropped",
        "('tables', 12): {'title': 'vgg on digits to accuracy 0.9, beside published f: dropped",
    }


@pytest.mark.slow
@pytest.mark.parametrize("part", ["quick", pytest.param("all", marks=pytest.mark.exhaustive)])
def test_every_value_of_a_study_of_stacks_that_is_altered_is_seen(study: Path, folder: Path, part: str) -> None:
    """Those that are of another kind than the values of a report that is about no stacks."""
    content = read(study / "report")
    assert content["selectors"] == [STUDY]
    covered = {kind for each in alterations.alterations(read(folder)) for kind in each.kinds}
    some = alterations.sampled(alterations.alterations(content), covered)
    assert len(some) > 50
    assert unseen(content, [study / "runs"], some[:: 1 if part == "all" else 7]) == set()


@pytest.mark.parametrize("blind", ["figures", "bests"])
def test_an_audit_that_does_not_look_is_found_out(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, blind: str
) -> None:
    """Otherwise the tests above would prove nothing."""
    content = read(folder)
    part = {"bests": "best"}.get(blind, blind)
    module = importlib.import_module(f"tracking.analysis.audit.{blind}")
    claimed = {module.identity(record): trees.UNCHECKED for record in content[part]}
    monkeypatch.setattr(module, "expected", lambda *_: claimed)
    if blind == "figures":
        monkeypatch.setattr(figures, "as_printed", lambda _, expected: expected)
    some = [each for each in alterations.sampled(alterations.alterations(content)) if each.path[0] == part]
    assert len(unseen(content, [root / "runs"], some[:25])) > 5


def test_a_whole_part_that_is_missing_or_new_is_seen(root: Path, folder: Path) -> None:
    content = read(folder)
    for key in content.keys() - {*WORDS, "within", "over"}:  # older reports lack these two
        less = {name: value for name, value in content.items() if name != key}
        assert audit(less, [root / "runs"]).differences, key
    older = {name: value for name, value in content.items() if name not in ("within", "over")}
    told = audit(older, [root / "runs"]).differences
    assert not any("make it again" in sentence for sentence in told)
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
    for other in others[::5]:
        with (tmp_path / "report.csv").open("w", newline="") as file:
            csv.writer(file).writerows(other)
        assert named(content, tmp_path / "report.csv"), other


def named(content: dict[str, Any], path: Path) -> bool:
    """Whether a file that differs from the JSON is named; without the JSON's own check, which others do."""
    from tracking.analysis.audit import report_files

    tally = AuditResult()
    compare = {".csv": report_files._csv, ".md": report_files._markdown, ".html": report_files._page}[path.suffix]
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


@pytest.mark.parametrize("name", ["report.md", "report.html"])
def test_a_number_of_the_answer_that_is_altered_in_a_page_is_seen(
    root: Path, folder: Path, tmp_path: Path, name: str
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    [*_, number] = re.finditer(r"\d+", read(folder)["headlines"][0])
    beginning = number.string[: number.start()]
    text = (folder / name).read_text()
    altered = text.replace(f"{beginning}{number[0]}", f"{beginning}{int(number[0]) + 1}")
    assert altered != text
    (tmp_path / name).write_text(altered)
    assert audit_folder(tmp_path, [root / "runs"]).differences == [
        f"{name}: its answer differs from that of report.json"
    ]


ROOFLINE = "report-roofline.json"
PICTURES = ("settings", "accuracy", "utilisation", "reached", "scaling", "throughput", "cost")


def test_every_value_behind_a_picture_that_is_altered_is_seen(root: Path, folder: Path, tmp_path: Path) -> None:
    names = {path.name for path in folder.glob("report-*.json")}
    over_all = {"report-busy.json", ROOFLINE}
    assert names == {*(f"report-1-{name}.json" for name in PICTURES), *over_all}
    evidence = Evidence(read(folder), [root / "runs"])
    for name in sorted(names):
        assert unseen_in_picture(folder / name, evidence, tmp_path) == set(), name


def test_so_is_every_value_of_the_picture_of_stacks(study: Path, tmp_path: Path) -> None:
    evidence = Evidence(read(study / "report"), [study / "runs"])
    for name in ("report-1-stacks.json", "report-1-reached.json"):
        assert unseen_in_picture(study / "report" / name, evidence, tmp_path) == set(), name


def test_so_is_every_value_of_the_mean_utilisation_of_two_workloads(tmp_path: Path) -> None:
    targets = {"accuracy": 0.9}, {"accuracy": 0.8}
    runs = [{"config": {"targets": each, "seed": seed}} for each in targets for seed in (1, 2)]
    made = few_runs.written(tmp_path / "runs", runs)
    page.write(made, tmp_path / "report")
    evidence = Evidence(read(tmp_path / "report"), [tmp_path / "runs"])
    path = tmp_path / "report" / "report-mean-utilisation.json"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert unseen_in_picture(path, evidence, scratch) == set()


def test_so_is_every_value_of_elo_over_generations(tmp_path: Path) -> None:
    run = make_run(make_sweep(tmp_path / "runs", SWEEP, "sqlite:///none.db", 1), config(), "sqlite:///none.db")
    log = Writer(run / "journal.jsonl", START_MS)
    for step, elo in ((8, 3.5), (16, -9.0), (16, 8.0), (24, 70.0), (32, 65.0)):
        log.add("metrics", 100.0 + step, step=step, values={"gate/elo": elo})
    store = FolderRuns([tmp_path / "runs"])
    page.write(report.make(store, [SWEEP], store.find([SWEEP])), tmp_path / "report")
    evidence = Evidence(read(tmp_path / "report"), [tmp_path / "runs"])
    assert unseen_in_picture(tmp_path / "report" / "report-1-elo.json", evidence, tmp_path) == set()


def unseen_in_picture(path: Path, evidence: Evidence, scratch: Path) -> set[str]:
    picture = json.loads(path.read_text())
    every = [*alterations.alterations(picture, lambda _, path: path[0] == "caption")]
    numbers = sum(isinstance(value, float) for _, value in alterations.values(picture))
    assert numbers > 3
    assert differences(path.name, picture, evidence, scratch) == []
    some = every if len(every) < 200 else [*every[:: len(every) // 100], *alterations.sampled(every)]
    return {str(each) for each in some if not differences(path.name, each.made(picture), evidence, scratch)}


def differences(name: str, picture: dict[str, Any], evidence: Evidence, scratch: Path) -> list[str]:
    (scratch / name).write_text(json.dumps(picture))
    tally = AuditResult()
    audit_pictures(scratch, evidence, tally)
    (scratch / name).unlink()
    return tally.differences


def test_a_picture_without_data_is_named(root: Path, folder: Path, tmp_path: Path) -> None:
    evidence = Evidence(read(folder), [root / "runs"])
    for path in folder.glob("report-*.json"):
        picture = json.loads(path.read_text())
        assert differences(path.name, picture | {"panels": []}, evidence, tmp_path)
        (words,) = differences(
            path.name, {"name": picture["name"], "workload": picture["workload"]}, evidence, tmp_path
        )
        assert words.startswith(f"{path.name}: it does not hold a picture's data")
    (words,) = differences("report-1-other.json", {}, evidence, tmp_path)
    assert words == "report-1-other.json: a picture of this name cannot be recomputed"


def test_every_number_of_the_parts_of_times_is_seen_also_in_words(tmp_path: Path) -> None:
    """Of settings whose runs all reached the target: others have no parts."""
    sweep, root = make_sweep(tmp_path / "runs", SWEEP, "sqlite:///none.db", 4), tmp_path
    for gpus, seed, step_sec in ((1, 1, 0.10), (1, 2, 0.12), (2, 1, 0.05), (2, 2, 0.06)):
        make_run(sweep, config(gpus=gpus, seed=seed), "sqlite:///none.db", step_sec)
    store = FolderRuns([root / "runs"])
    page.write(report.make(store, [SWEEP], store.find([SWEEP]), ["gpus"]), root / "report")
    content = read(root / "report")
    assert audit(content, [root / "runs"]).differences == []
    for key in ("rate", "evaluations", "p_rate"):
        other = json.loads(json.dumps(content))
        other["comparisons"][0]["parts"][key] *= 1.01
        assert audit(other, [root / "runs"]).differences, key
    (table,) = (number for number, table in enumerate(content["tables"]) if table["kind"] == "pairs")
    (said,) = (sentence["text"].strip("; ") for sentence in content["sentences"] if sentence["kind"] == "factors")
    (column,) = (n for n, name in enumerate(content["tables"][table]["columns"]) if name == "so")
    assert said in content["tables"][table]["rows"][0][column]
    for changed in ["", *alterations.digits(said)]:
        other = json.loads(json.dumps(content))
        row = other["tables"][table]["rows"][0]
        row[column] = row[column].replace(said, changed)
        (words,) = audit(other, [root / "runs"]).differences
        assert words.endswith(f"words with {said!r}")


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
    for words in ("sentences", "titles", "notes", "captions", "drawings", "published"):
        assert words in section, words
