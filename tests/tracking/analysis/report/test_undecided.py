"""How many more seeds would tell, if the setting closest to the best is told apart and a noisier one is not."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.few_runs import repeated, written
from tracking.analysis.audit import audit
from tracking.analysis.compare import runs_that_would_tell
from tracking.analysis.report.report import Report

METRIC = "time/epoch_sec"
BEST, CLOSE, NOISY = (0.1, 0.1001, 0.1002), (0.102, 0.1021, 0.1022), (0.1, 0.13, 0.16)  # seconds a step


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Report]:
    return functools.partial(written, tmp_path)


def of_gpus() -> list[dict[str, Any]]:
    steps = {1: BEST, 2: CLOSE, 4: NOISY}
    return [run for gpus, own in steps.items() for run in repeated(config={"gpus": gpus}, steps=own)]


def more_seeds(made: Report) -> list[int]:
    """The further runs that would tell the best setting from the noisy one, by the power computation."""
    best = made.best(made.tasks[0])
    assert best
    [pair] = [pair for _, pair in made.comparisons if (pair.better, pair.worse) == (best.settings[0], best.settings[2])]
    needed = runs_that_would_tell(pair, METRIC, best.level)
    assert needed
    return [needed.first - 3, needed.second - 3]


def test_more_seeds_are_those_that_tell_the_setting_that_may_be_as_good(
    make: Callable[..., Report], tmp_path: Path
) -> None:
    made = make(of_gpus(), metric=METRIC)
    number, same = more_seeds(made)
    assert number == same
    [said] = [answer.headline for answer in made.answers]
    assert "1.02 times as fast as 2 GPUs" in said, "the next one is told apart"
    assert f"That cannot be told apart from 4 GPUs; {number} more seeds of each (about " in said
    [record] = made.plain()["best"]
    assert (record["next"], record["undecided"]) == ({"gpus": "2"}, {"gpus": "4"})
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path]).differences == []


@pytest.mark.parametrize("gpus", ["1", "2"])
def test_another_setting_in_its_place_is_found(make: Callable[..., Report], tmp_path: Path, gpus: str) -> None:
    document = json.loads(json.dumps(make(of_gpus(), metric=METRIC).plain()))
    document["best"][0]["undecided"] = {"gpus": gpus}
    assert any("undecided" in words for words in audit(document, [tmp_path]).differences)


def test_a_wrong_number_of_seeds_is_found(make: Callable[..., Report], tmp_path: Path) -> None:
    made = make(of_gpus(), metric=METRIC)
    number, _ = more_seeds(made)
    altered = json.dumps(made.plain()).replace(f"{number} more seeds", f"{number + 1} more seeds")
    assert any("4 GPUs" in words for words in audit(json.loads(altered), [tmp_path]).differences)


def test_so_it_is_of_stacks(make: Callable[..., Report], tmp_path: Path) -> None:
    steps = {"580.1": BEST, "590.2": CLOSE, "600.3": NOISY}
    runs = [run for driver, own in steps.items() for run in repeated(tags={"env.driver": driver}, steps=own)]
    made = make(runs, by=["driver"], metric=METRIC)
    [note] = [table.note for table in made.tables if table.kind == "stacks"]
    assert "The best mean is of driver=580.1, which cannot be told apart from driver=600.3. " in note
    said = re.search(r"(\d+) runs a side \(.*\) would tell driver=580.1 from driver=600.3 in 80% of cases", note)
    assert said, note
    assert int(said[1]) == more_seeds(made)[0] + 3
    document = json.loads(json.dumps(made.plain()))
    assert audit(document, [tmp_path]).differences == []
    [record] = [record for record in document["best"] if record["among"] is not None]
    assert record["runs_that_would_tell"]["better"] == int(said[1])
    record["runs_that_would_tell"]["better"] += 1
    assert audit(document, [tmp_path]).differences
