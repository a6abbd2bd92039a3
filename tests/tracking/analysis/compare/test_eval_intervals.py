"""Settings that are evaluated at other intervals do not compare in time: reports warn, gates refuse."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.support.studied import CLOCKS, SWEEP, config, make_run, make_sweep
from tracking.analysis.audit import audit
from tracking.analysis.compare.eval_intervals import PARAMS, alike, even, uneven
from tracking.analysis.compare.gate import Question, judge
from tracking.analysis.report import report
from tracking.analysis.results import Run
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.record import Journal, run_folder

TIME = "time/to_accuracy_sec"


def note(folder: Path, params: dict[str, Any]) -> None:
    log = Journal(folder / run_folder.JOURNAL)
    log.params(params)
    log.close()


def run(number: int, target: str = "accuracy", **params: str) -> Run:
    return Run(str(number), f"run{number}", "e", "FINISHED", 0, 1, params={"target_metric": target, **params})


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({}, {}, True),
        ({"eval_interval_samples": "5000"}, {"eval_interval_samples": "5000"}, True),
        ({"eval_interval_samples": "5000"}, {"eval_interval_samples": "5120"}, True),  # rounded to steps
        ({"eval_interval_samples": "5000"}, {"eval_interval_samples": "10000"}, False),
        ({"eval_interval_samples": "5000"}, {}, False),
        ({"eval_at_epochs": "32,43"}, {"eval_at_epochs": "32,48"}, False),
        ({"eval_after_samples": "100"}, {}, False),
    ],
)
def test_intervals_are_compared_in_samples(first: dict[str, str], second: dict[str, str], expected: bool) -> None:
    mine, other = run(1, **first), run(2, **second)
    assert alike(mine, other) is alike(other, mine) is expected
    assert (uneven({"a": [mine], "b": [other]}) == []) is expected


def test_the_sentence_says_which_and_why() -> None:
    short, long = run(1, eval_interval_samples="5000", eval_after_samples="20000"), run(2, eval_at_epochs="32,43")
    (sentence,) = uneven({"a": [short], "b": [long, run(3)]})
    assert sentence.startswith(
        "the runs were evaluated at different intervals: every 5,000 samples from 20,000 samples on in 1 run (a);"
        " after epochs 32,43 in 1 run (b); every epoch in 1 run (b); times to accuracy do not compare"
    )
    assert uneven({"a": [run(1, target="", eval_interval_samples="5")], "b": [run(2, target="")]}) == []


@pytest.mark.parametrize("others", [{}, {"eval_interval_samples": "100"}, *({key: "40"} for key in PARAMS[1:])])
def test_even_are_equal_intervals_from_the_start_on(others: dict[str, str]) -> None:
    assert even([run(1, **others), run(2, **others)]) is not bool(others.keys() & {*PARAMS[1:]})
    assert even([run(1), run(2, **others)]) is not bool(others)


@pytest.mark.parametrize("key", ["", *PARAMS])
def test_a_rate_is_that_of_even_intervals_alone(tmp_path: Path, key: str) -> None:
    """With first evaluations after 40 epochs, fewer evaluations have the longer time each."""
    sweep = make_sweep(tmp_path, SWEEP, "sqlite:///none.db", 6)
    for gpus, seed in product((1, 2), (1, 2, 3)):
        folder = make_run(sweep, config(gpus=gpus, seed=seed), "sqlite:///none.db", 0.1 + seed / 100)
        note(folder, {key: "40"} if key else {})
    store = FolderRuns([tmp_path])
    made = report.make(store, [SWEEP], store.find([SWEEP]))
    [pair] = made.plain()["comparisons"]
    stated = key in ("", "eval_interval_samples")
    said = any(sentence["kind"] == "factors" for sentence in made.plain()["sentences"])
    assert (said, pair["parts"] is not None) == (stated, stated)
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path]).differences == []


@pytest.fixture
def store(tmp_path: Path) -> FolderRuns:
    """Runs of two batch sizes. The second evaluates every 100 samples."""
    sweep = make_sweep(tmp_path, SWEEP, "sqlite:///none.db", 4)
    for batch_size in (16, 32):
        for seed in (1, 2):
            asked = config(seed=seed, batch_size=batch_size)
            folder = make_run(sweep, asked, "sqlite:///none.db", 0.1 + seed / 100, fingerprint=CLOCKS)
            if batch_size == 32:
                note(folder, {"eval_interval_samples": 96})
    return FolderRuns([tmp_path])


@pytest.mark.parametrize("axes", [["batch_size"], ["batch_size", "eval_interval_samples"]])
def test_a_report_warns_whatever_its_axes(store: FolderRuns, axes: list[str]) -> None:
    made = report.make(store, [SWEEP], store.find([SWEEP]), by=axes)
    (warning,) = [words for words in made.warnings if "evaluated at different intervals" in words]
    assert "every epoch in 2 runs" in warning
    assert "every 96 samples in 2 runs" in warning


@pytest.mark.parametrize(("metric", "refused"), [(TIME, True), ("throughput/samples_per_sec", False)])
def test_a_gate_refuses_what_is_to_accuracy(store: FolderRuns, metric: str, refused: bool) -> None:
    runs = store.find([SWEEP])
    base, candidate = ([run.id for run in runs if run.params["batch_size"] == size] for size in ("16", "32"))
    question = Question({"baseline": base, "candidate": candidate}, metric, 0.5)
    if refused:
        with pytest.raises(ValueError, match=f"--metric {metric}: the runs were evaluated at different intervals"):
            judge(store, question)
    else:
        assert any("evaluated at different intervals" in note for note in judge(store, question).notes)
