"""Reports on sweeps whose runs are to be compared in pairs of the same seed: `sweep.paired=true`."""

from __future__ import annotations

import copy
import functools
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from scipy import stats

from conf.launch_options import SweepConfig
from tests.support.few_runs import repeated, written
from tests.support.studied import SWEEP, config
from tracking.analysis.audit.audit import audit
from tracking.analysis.report.report import Report
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.jobs.plan import run_setup
from tracking.record import run_folder

# The seed's effect is far larger than the precision's.
FP32 = (0.100, 0.130, 0.160, 0.190)
BF16 = (0.0975, 0.1278, 0.1576, 0.1874)
TIME = "time/epoch_sec"  # does not fall on evaluations
TARGET = "time/to_accuracy_sec"


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Report]:
    return functools.partial(written, tmp_path)


def sides(
    fp32: tuple[float, ...] = FP32, bf16: tuple[float, ...] = BF16, undecided: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """The runs of two precisions; those of `undecided` were not made to be paired."""
    return [
        run
        for name, steps in (("fp32", fp32), ("bf16", bf16))
        for run in repeated(config={"precision": name, "sweep": SweepConfig(paired=name not in undecided)}, steps=steps)
    ]


def the_pair(report: Report) -> dict[str, Any]:
    (pair,) = report.plain()["comparisons"]
    return dict(pair)


def warned(report: Report) -> list[str]:
    return [warning for warning in report.warnings if "sweep.paired=true" in warning]


def test_pairs_tell_apart_what_the_seeds_hide(make: Callable[..., Report], tmp_path: Path) -> None:
    made = make(sides(), metric=TIME)
    pair, (best,) = the_pair(made), made.plain()["best"]
    assert (pair["paired"], pair["told_apart"], pair["better"]) == (True, True, {"precision": "bf16"})
    values = [setting.measured(TIME).reached for setting in made.tasks[0].settings]
    assert pair["p"] == pytest.approx(stats.ttest_rel(*values).pvalue)
    assert pair["so"] == "precision=bf16 is better by a factor of 1.02, paired by seed"
    assert best["candidates"] == [{"precision": "bf16"}]
    assert 1 < best["low"] < best["factor"] < best["high"] < 1.04
    assert not warned(made)
    assert audit(made.plain(), [tmp_path]).differences == []


@pytest.mark.parametrize("undecided", [("fp32",), ("fp32", "bf16")])
def test_seeds_are_no_pairs_where_that_was_not_decided_of_both(
    make: Callable[..., Report], tmp_path: Path, undecided: tuple[str, ...]
) -> None:
    made = make(sides(undecided=undecided), metric=TIME)
    pair = the_pair(made)
    assert (pair["paired"], pair["told_apart"]) == (False, False)
    assert pair["so"] == "cannot be told apart"
    assert not warned(made)
    assert audit(made.plain(), [tmp_path]).differences == []


def test_a_seed_that_one_side_lacks_is_named_and_nothing_is_paired(make: Callable[..., Report], tmp_path: Path) -> None:
    made = make(sides(bf16=BF16[:3]), metric=TIME)
    assert the_pair(made)["paired"] is False
    (warning,) = warned(made)
    assert warning.endswith(f"not possible for 1 comparison: precision=bf16: no counted run has the seed 4 and {TIME}")
    assert audit(made.plain(), [tmp_path]).differences == []


def test_a_seed_that_missed_the_target_is_named_and_nothing_is_paired(
    make: Callable[..., Report], tmp_path: Path
) -> None:
    runs = sides()
    runs[1]["accuracies"] = (0.1, 0.2, 0.3)
    made = make(runs, by=["precision"])
    assert made.metric == TARGET
    assert the_pair(made)["paired"] is False
    (warning,) = warned(made)
    assert f"precision=fp32: the run of seed 2 has no {TARGET} (target missed)" in warning
    assert audit(made.plain(), [tmp_path]).differences == []


def test_a_run_that_was_made_without_it_is_named(make: Callable[..., Report], tmp_path: Path) -> None:
    runs = sides()
    runs[-1]["config"]["sweep"] = SweepConfig()
    made = make(runs, metric=TIME)
    assert the_pair(made)["paired"] is False
    assert "precision=bf16: the run of seed 4 was made without it" in warned(made)[0]
    assert audit(made.plain(), [tmp_path]).differences == []


def test_pairs_that_tell_nothing_say_how_many_would(make: Callable[..., Report], tmp_path: Path) -> None:
    made = make(sides(bf16=(0.098, 0.133, 0.158, 0.187)), metric=TIME)
    pair = the_pair(made)
    assert (pair["paired"], pair["told_apart"]) == (True, False)
    values = [setting.measured(TIME).reached for setting in made.tasks[0].settings]
    gaps = [value - other for value, other in zip(*values, strict=True)]
    # Without the t distribution's tails: the spread of the differences, not that of the seeds.
    least = (statistics.stdev(gaps) * (1.95996 + 0.84162) / statistics.fmean(gaps)) ** 2
    assert least <= pair["runs_that_would_tell"]["better"] <= least + 3
    assert audit(made.plain(), [tmp_path]).differences == []


def test_the_audit_sees_what_is_altered_of_pairs(make: Callable[..., Report], tmp_path: Path) -> None:
    plain = make(sides(), metric=TIME).plain()
    for key, value in (("paired", False), ("p", 0.9), ("paired", None)):
        other = copy.deepcopy(plain)
        other["comparisons"][0][key] = value
        assert any(f": {key}: " in difference for difference in audit(other, [tmp_path]).differences)
    for path in sorted((tmp_path / SWEEP).rglob(run_folder.CONFIG))[:1]:  # decided afterwards, of all runs but one
        content = yaml.safe_load(path.read_text())
        content["sweep"]["paired"] = False
        path.write_text(yaml.safe_dump(content))
    assert any(": paired: the report has True" in words for words in audit(plain, [tmp_path]).differences)


def test_the_best_stack_is_paired_too(make: Callable[..., Report], tmp_path: Path) -> None:
    runs = [
        run
        for torch, steps in (("2.6", FP32), ("2.9", BF16))
        for run in repeated(config={"sweep": SweepConfig(paired=True)}, steps=steps, tags={"env.torch": torch})
    ]
    made = make(runs, by=["env.torch"], metric=TIME)
    (stack,) = [record for record in made.plain()["best"] if record["among"] is not None]
    assert stack["candidates"] == [{"env.torch": "2.9"}]
    assert stack["low"] > 1
    assert any("paired by seed)" in sentence.text for sentence in made.sentences)
    assert audit(made.plain(), [tmp_path]).differences == []


def test_a_run_says_that_it_was_made_to_be_paired(tmp_path: Path) -> None:
    for paired in (False, True):
        asked = config(sweep=SweepConfig(paired=paired))
        owner = run_setup.make_folder(f"run-{paired}", tmp_path)
        run_setup.prepare(owner.folder, f"run-{paired}", asked, [], "sqlite:///none.db")
        owner.release()
    runs = FolderRuns([tmp_path]).find([str(tmp_path)])
    assert {run.name: run.paired for run in runs} == {"run-False": False, "run-True": True}
