"""`report` of a search: its answer as numbers, no verdicts of its own, and `--check` of the search's figures."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.event_schema import SCHEMA, strict
from tests.support.studied import SWEEP
from tests.support.studied_search import write_search
from tests.tracking.analysis.audit import alterations
from tracking.__main__ import main
from tracking.analysis.audit.audit import audit
from tracking.analysis.audit.journals import JournalFigures
from tracking.analysis.report import page, report
from tracking.analysis.report.sentences import ANSWER
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.jobs.search import answer_in

SEARCHES = {
    "quickest": {},
    "front": {"objective": "time,cost"},
    "misses": {"misses": True},
    "noisy": {"noise": 0.3, "budget": "2gpu-hours"},
    "spent": {"budget": "20runs"},
}


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {name: tmp_path_factory.mktemp(name) for name in SEARCHES}
    for name, options in SEARCHES.items():
        write_search(folders[name], **options)  # type: ignore[arg-type]
    return folders


@pytest.fixture(autouse=True)
def journals_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracking.analysis.audit.evidence.selection.JournalFigures", functools.cache(JournalFigures))


def plain(root: Path, searched: bool = True) -> dict[str, Any]:
    store = FolderRuns([root])
    answer = answer_in(root / SWEEP) if searched else None
    made = report.make(store, [SWEEP], store.find([SWEEP]), searched=[answer] if answer else [])
    content: dict[str, Any] = json.loads(page._json(made.plain()))
    return content


def changed(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value of an answer with another one in its place: numbers, flags and words, and settings left out."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, bool):
            yield (*path, key), not value
        elif isinstance(value, int | float):
            yield (*path, key), value * 1.01 + 1e-4
        elif isinstance(value, str):
            yield (*path, key), f"{value}x"
        elif value is None:
            yield (*path, key), 1.5
        else:
            yield from changed(value, (*path, key))
            if value:
                yield (*path, key), type(value)()


# No run holds what exploring makes of its runs, and what was asked. In the words, figures are compared.
NOT_OF_RUNS = {"num_left_out", "grid_cost", "asked", "words", "sweep"}


# Every so many of an answer's values.
ALTERED = [*((name, 8 if name == "quickest" else 18) for name in SEARCHES)]


@pytest.mark.parametrize(("name", "every"), [*ALTERED, pytest.param("quickest", 1, marks=pytest.mark.exhaustive)])
def test_every_number_of_a_searchs_answer_that_is_altered_is_seen(
    roots: dict[str, Path], name: str, every: int
) -> None:
    content = plain(roots[name])
    assert audit(content, [roots[name]]).differences == []
    some = [(path, value) for path, value in changed(content["searched"][0]) if not NOT_OF_RUNS & {*path}]
    assert len(some) > 100
    unseen = []
    for path, value in some[::every]:
        other = copy.deepcopy(content)
        node = other["searched"][0]
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value
        if not audit(other, [roots[name]]).differences:
            unseen.append(path)
    assert unseen == []


def test_a_falsified_figure_of_a_search_is_found_in_the_files(
    roots: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["report", str(roots["quickest"] / SWEEP), "--from-folders", "--out", str(tmp_path / "made"), "--check"]
    assert main(asked) == 0
    path = tmp_path / "made/report.json"
    content = json.loads(path.read_text())
    content["searched"][0]["value"]["mean"] -= 0.1
    content["searched"][0]["budget"]["spent"] = 1.0
    path.write_text(json.dumps(content))
    capsys.readouterr()
    assert main(["audit", str(tmp_path / "made"), "--runs-dir", str(roots["quickest"])]) == 1
    said = capsys.readouterr().out
    assert f"searched: {SWEEP}: time: value: mean: the report has" in said
    assert f"searched: {SWEEP}: budget: spent: the report has 1.0" in said


def test_a_folder_that_a_killed_launcher_left_without_a_config_is_no_run_of_the_search(
    roots: dict[str, Path], tmp_path: Path
) -> None:
    """The config is written after the params and tags."""
    shutil.copytree(roots["quickest"], tmp_path / "root")
    whole = next(path.parent for path in (tmp_path / "root" / SWEEP).glob("*/config.yaml"))
    left = whole.with_name("left")
    left.mkdir()
    info = json.loads((whole / "run.json").read_text())
    (left / "run.json").write_text(json.dumps(info | {"uid": "left"}))
    rows = (whole / "journal.jsonl").read_text().splitlines(keepends=True)
    begun = itertools.takewhile(lambda row: json.loads(row)["kind"] in ("params", "tags"), rows)
    (left / "journal.jsonl").write_text("".join(begun))
    assert "sweep" in (left / "journal.jsonl").read_text()
    assert audit(plain(tmp_path / "root"), [tmp_path / "root"]).differences == []


def test_a_ratio_to_a_setting_with_misses_is_at_least_that_also_by_the_check(roots: dict[str, Path]) -> None:
    content = plain(roots["misses"])
    words = content["searched"][0]["words"]
    assert "It is at least " in words
    content["searched"][0]["words"] = words.replace("It is at least ", "It is ")
    assert any("its words lack" in sentence for sentence in audit(content, [roots["misses"]]).differences)


def test_an_answer_of_an_earlier_version_is_passed_over_and_a_shortened_one_is_not(
    roots: dict[str, Path], tmp_path: Path
) -> None:
    content = plain(roots["quickest"])
    for key in ("budget", "looks", "second", "front", "value"):
        del content["searched"][0][key]
    assert audit(content, [roots["quickest"]]).differences
    shutil.copytree(roots["quickest"], tmp_path / "root")
    for path in (tmp_path / "root" / SWEEP).glob("*/journal.jsonl"):
        path.write_text(path.read_text().replace('"timetrial.search"', '"untagged"'))
    earlier = plain(tmp_path / "root") | {"searched": content["searched"]}
    assert audit(earlier, [tmp_path / "root"]).differences == []


def test_words_with_another_figure_and_a_search_without_runs_are_found(roots: dict[str, Path]) -> None:
    content = plain(roots["quickest"])
    answer = content["searched"][0]
    mean = f"{answer['value']['mean']:.4g} s ("
    other = copy.deepcopy(content)
    other["searched"][0]["words"] = answer["words"].replace(mean, "0.1 s (")
    assert any("its words lack" in sentence for sentence in audit(other, [roots["quickest"]]).differences)
    answer["sweep"] = "20200101-000000-vgg-ffff"
    assert any("no run folder is of a search" in said for said in audit(content, [roots["quickest"]]).differences)


@pytest.mark.parametrize("name", list(SEARCHES))
def test_an_answer_has_every_field_of_its_schema_and_no_others(roots: dict[str, Path], name: str) -> None:
    answer = answer_in(roots[name] / SWEEP)
    assert answer
    event = {"event": "answer", "version": 1, "time_ms": 1, **answer}
    strict().validate(event)
    for key in answer:
        assert list(strict().iter_errors({each: value for each, value in event.items() if each != key})), key
    assert list(strict().iter_errors({**event, "more": 1}))
    assert {*SCHEMA["$defs"]["answer"]["properties"]} < {*answer}
    figure = SCHEMA["$defs"]["figure"]
    assert {*figure["properties"]} == {*figure["required"]} == {*answer["figures"][0]}


def test_a_report_shows_the_answer_of_a_search_in_all_its_parts(
    roots: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["report", str(roots["quickest"] / SWEEP), "--from-folders", "--out", str(tmp_path / "made"), "--json"]
    assert main(asked) == 0
    document = json.loads(capsys.readouterr().out)
    written = json.loads((roots["quickest"] / SWEEP / "search.json").read_text())["answer"]
    [answer] = document["search"]
    assert answer == written == document["report"]["searched"][0]
    named = next(figure for figure in answer["figures"] if figure["setting"] == answer["named"])
    assert answer["value"] == named
    assert named["low"] < named["mean"] < named["high"]
    other = next(group for group in answer["groups"] if group["group"] != answer["named"]["gpus"])
    costs = named["cost_usd"] / other["best"]["cost_usd"]
    assert other["times_the_cost"] == pytest.approx(costs)
    assert f"at {costs:.3g} times the cost" in answer["words"]
    assert answer["budget"]["spent"] == answer["explore_cost"] + answer["decide_cost"]
    assert (answer["unit"], answer["looks"], answer["budget"]["asked"]) == ("s", 3, 7200.0)


def test_a_report_of_a_search_alone_has_the_searchs_answer_and_no_other(roots: dict[str, Path]) -> None:
    content = plain(roots["quickest"])
    words = content["searched"][0]["words"]
    assert content["headlines"] == [words]
    assert content["answer"] == words
    assert not [sentence for sentence in content["sentences"] if sentence["kind"] in ANSWER]


@pytest.mark.parametrize("searched", [True, False])
def test_runs_that_a_search_looked_at_get_no_verdict_of_the_reports_own(roots: dict[str, Path], searched: bool) -> None:
    """Its tests would err more often than they say, since the number of runs hung on what they showed."""
    content = plain(roots["misses"], searched)
    assert content["comparisons"]
    for pair in content["comparisons"]:
        assert (pair["p"], pair["told_apart"], pair["parts"], pair["reaches_more_often"]) == (None, False, None, None)
        assert pair["so"] == "not tested: runs of a search, whose answer is in its search.json"
    [best] = content["best"]
    assert (best["p_corrected"], best["low"], best["high"]) == (None, None, None)
    [ranking] = [table for table in content["tables"] if table["kind"] == "ranking"]
    place = ranking["columns"].index("verdict")
    assert {row[place] for row in ranking["rows"]} == {"see its search", ""}
    assert "its answer is in its search.json" in ranking["note"]
    if not searched:
        assert f"they are not tested here; its answer is in search.json of {SWEEP}." in content["headlines"][0]
    assert audit(content, [roots["misses"]]).differences == []


def test_an_altered_report_of_runs_of_a_search_is_found_out(roots: dict[str, Path]) -> None:
    """Also where its answer is not at hand, as from MLflow."""
    content = plain(roots["misses"], searched=False)
    some = alterations.sampled(alterations.alterations(content))
    unseen = {str(each) for each in some[::40] if not audit(each.made(content), [roots["misses"]]).differences}
    assert unseen <= {f"('selectors', 0): {SWEEP}: twice", "('with_neighbours',): False: True"}
