"""`report` of a search in which no run reached its target: the search's answer is shown, and passes its audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.event_schema import strict
from tests.support.studied import SWEEP
from tests.support.studied_search import write_search
from tracking.__main__ import main

# By how every run ends, with the budget: what ended the search, the best value, and the answer's words.
ENDS = {
    "error": ("2h", "all failed", 0.6, "Every run failed. The first: failed: error: it ended by error"),
    "timeout": ("20runs", "budget spent", 0.6, "Not decided: no run reached the target within the budget. The best"),
    "nan": ("2h", "all missed", 0.6, "No setting reached the target. The best value was 0.6."),
    "signal:9": ("1runs", "no runs", None, "The budget is spent: lost runs are not repeated"),
}


@pytest.mark.parametrize("end", list(ENDS))
def test_a_search_in_which_no_run_finished_is_reported_with_its_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    budget, why, best, words = ENDS[end]
    write_search(tmp_path / "runs", budget=budget, ends=end)
    out = tmp_path / "made"
    asked = ["report", str(tmp_path / "runs" / SWEEP), "--from-folders", "--out", str(out), "--check"]
    assert main([*asked, "--json"]) == 0, capsys.readouterr().out
    [answer] = json.loads(capsys.readouterr().out)["search"]
    written = json.loads((out / "report.json").read_text())
    assert written["searched"] == [answer]
    assert (answer["why"], answer["best_value_if_all_missed"]) == (why, best)
    strict().validate({"event": "answer", "version": 1, "time_ms": 1, **answer})

    assert main(asked) == 0
    said = capsys.readouterr().out
    assert said.startswith(words), said
    assert answer["words"] == written["headlines"][0]
    assert f"careful: {tmp_path / 'runs' / SWEEP}: no run finished: {end} (" in said

    written["searched"][0]["why"] = "decided"
    (out / "report.json").write_text(json.dumps(written))
    assert main(["audit", str(out), "--runs-dir", str(tmp_path / "runs")]) == 1


def test_a_search_whose_deciding_runs_all_missed_says_so_and_passes_its_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_search(tmp_path / "runs", only_explored=True)
    asked = ["report", str(tmp_path / "runs" / SWEEP), "--from-folders", "--out", str(tmp_path / "made"), "--check"]
    assert main([*asked, "--json"]) == 0, capsys.readouterr().out
    [answer] = json.loads(capsys.readouterr().out)["search"]
    assert answer["words"].startswith("Not decided: gpus=2 batch_size=")
    assert " reached the target in exploring, but no deciding run did. Give more epochs" in answer["words"]
    strict().validate({"event": "answer", "version": 1, "time_ms": 1, **answer})
    assert (answer["why"], answer["looks"]) == ("missed in deciding", 3)


def test_a_search_that_goes_on_without_a_finalist_passes_its_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It can no longer be run, and its runs before that are in no comparison."""
    write_search(tmp_path / "runs", refuses=True)
    asked = ["report", str(tmp_path / "runs" / SWEEP), "--from-folders", "--out", str(tmp_path / "made"), "--check"]
    assert main([*asked, "--json"]) == 0, capsys.readouterr().out
    [answer] = json.loads(capsys.readouterr().out)["search"]
    assert (answer["named"], answer["compared"]) == ({"gpus": 2, "batch_size": 32}, [])
    [refused] = [figure for figure in answer["figures"] if figure["setting"] != answer["named"]]
    assert (answer["why"], answer["looks"], refused["num_short"]) == ("nothing compared", 1, 0)


def test_a_damaged_trace_of_a_search_is_named_where_its_answer_would_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_search(tmp_path / "runs", budget="6runs")
    trace = tmp_path / "runs" / SWEEP / "search.json"
    asked = ["report", str(tmp_path / "runs" / SWEEP), "--from-folders", "--out", str(tmp_path / "made"), "--check"]
    for content in ('{"answer": {', "[]"):
        trace.write_text(content)
        assert main(asked) == 0
        assert f"careful: The answer of a search is missing: {trace}: is " in capsys.readouterr().out
