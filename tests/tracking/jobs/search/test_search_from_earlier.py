"""A search from an earlier one: what it takes from its trace, and that it measures anew."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from conf.schema import ConfigError
from tests.tracking.jobs.search.made_searches import AXES, BEST, ended, make, run, search
from tracking.analysis.search import Axis, SearchTrial, highest_seed
from tracking.analysis.search.deciding import next_deciding
from tracking.jobs.plan import Job
from tracking.jobs.search import SearchJobs, trace_file
from tracking.jobs.search.search_rules import check_seeds, rules_of
from tracking.request.checks import HIGHEST_SEED


def test_a_search_from_an_earlier_one_begins_with_its_best_settings_and_measures_them_anew(tmp_path: Path) -> None:
    earlier, _ = ended()
    (tmp_path / "earlier").mkdir()
    earlier.finish(tmp_path / "earlier")
    named = earlier.answer().named
    assert named
    base = Job(make([]), ["model=m"])
    base.config.runs_dir, base.config.search.source = str(tmp_path), "earlier"
    made = SearchJobs(base, (Axis("gpus", (4, 8)), *AXES[1:]), make)
    tried = [job.config.search.setting for job in run(made, most=2)]
    inner = {key: value for key, value in named.items() if key != "gpus"}
    assert tried == [{"gpus": 4, **inner}, {"gpus": 8, **inner}]
    began = {"model": {"name": base.config.model.name}, "dataset": {"name": "another"}}
    (tmp_path / "earlier" / "sweep.json").write_text(json.dumps({"jobs": [{"config": began}]}))
    with pytest.raises(ConfigError, match=r"search\.from=earlier: searched model=\w+ on dataset=another, not"):
        SearchJobs(base, AXES, make)
    base.config.search.source = "later"
    with pytest.raises(ConfigError, match=r"search\.from=later: no such search\. .* there are: earlier"):
        SearchJobs(base, AXES, make)


def test_the_runs_of_an_earlier_search_over_the_same_axes_end_exploring_early(tmp_path: Path) -> None:
    earlier, jobs = ended()
    num_alone = sum(job.config.search.phase == "explore" for job in jobs)
    (tmp_path / "earlier").mkdir()
    earlier.finish(tmp_path / "earlier")
    base = Job(make([]), ["model=m"])
    base.config.runs_dir, base.config.search.source = str(tmp_path), "earlier"
    made = SearchJobs(base, AXES, make)
    explored = [job for job in run(made) if job.config.search.phase == "explore"]
    assert len(explored) < 0.8 * num_alone
    named = made.answer().named
    assert named is not None
    assert {key: named[key] for key in BEST} == BEST


@pytest.mark.parametrize(("axes", "objective"), [(AXES[:2], "time"), (AXES, "cost"), (AXES, "time,cost")])
def test_deciding_uses_no_seed_of_an_earlier_search_over_other_axes_or_for_another_objective(
    tmp_path: Path, axes: tuple[Axis, ...], objective: str
) -> None:
    earlier, jobs = ended()
    used = {job.config.seed for job in jobs}
    earlier.write(tmp_path)
    base = Job(make([]), ["model=m"])
    base.config.runs_dir, base.config.search.source = str(tmp_path.parent), tmp_path.name
    base.config.search.objective = objective
    rules = rules_of(base.config, axes, 0)
    explored = SearchTrial({"gpus": 1, "batch_size": 8}, 1, "explore", state="reached", value=10.0)
    decided = next_deciding(replace(rules, axes=AXES[:2], num_objectives=1), [explored])
    assert {trial.seed for trial in decided} == {max(used) + 1}


@pytest.mark.parametrize(
    ("axes", "objective", "there"),
    [
        (AXES, "time", True), ((Axis("gpus", (4, 8)), *AXES[1:]), "time", True), (AXES, "cost", False),
        (AXES[1:], "time", False), ((*AXES, Axis("precision", ("fp32", "bf16"))), "time", False),
    ],
)  # fmt: skip
def test_only_runs_over_the_same_axes_for_the_same_objective_say_how_settings_compare(
    tmp_path: Path, axes: tuple[Axis, ...], objective: str, there: bool
) -> None:
    earlier = search()
    ran = run(earlier, most=12)
    earlier.write(tmp_path)
    known = trace_file.runs_of(tmp_path, axes, objective)
    assert [trial.setting for trial in known] == ([job.config.search.setting for job in ran] if there else [])
    assert {trial.phase for trial in known} <= {"explore"}
    (tmp_path / "search.json").write_text('{"trials": [1], "asked": {"objective": "time"}}')
    with pytest.raises(ValueError, match="is not a search's trace"):
        trace_file.runs_of(tmp_path, AXES, "time")


def test_a_seed_without_room_for_those_of_the_search_is_refused_at_once() -> None:
    highest = HIGHEST_SEED - 10  # two repeats while exploring, and eight blocks
    config = make([f"seed={highest}"])
    assert highest_seed(rules_of(config, AXES, 0)) == HIGHEST_SEED
    for seed in highest + 1, 4294967290:
        words = f"seed={seed}: .*search=quickest repeats runs with up to 10 higher seeds. Allowed: 0 to {highest}. Next"
        with pytest.raises(ConfigError, match=words):
            rules_of(make([f"seed={seed}"]), AXES, 0)
    rules = replace(rules_of(make([]), AXES, 0), earlier_seed=HIGHEST_SEED - 1)
    with pytest.raises(ConfigError, match=r"its seeds end at 4294967294, and .* leave search\.from out"):
        check_seeds(make([]), rules)


def test_no_seed_of_a_search_is_above_the_highest_that_it_may_use() -> None:
    made = search()
    run(made)
    assert max(job.config.seed for job in made.jobs) <= highest_seed(rules_of(make([]), AXES, 0))
