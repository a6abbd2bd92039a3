"""The order in which a sweep's jobs run."""

from __future__ import annotations

import pytest

from conf.schema import ConfigError, RunConfig, StackConfig, SweepConfig
from tests.support import studied
from tracking.jobs.plan import ordering, run_setup
from tracking.jobs.plan.job import Job


def jobs(shuffle: int | None) -> list[Job]:
    return [
        Job(RunConfig(stack=StackConfig(name), seed=seed, sweep=SweepConfig(shuffle=shuffle)), [])
        for seed in (1, 2, 3)
        for name in "abcdef"
    ]


def order(shuffle: int | None) -> list[tuple[int, str]]:
    return [(job.config.seed, job.config.stack.name) for job in ordering.shuffled(jobs(shuffle))]


def test_without_a_number_it_is_that_of_the_command() -> None:
    assert order(None) == sorted(order(None))


def test_a_number_shuffles_within_each_seed_the_same_way_each_time() -> None:
    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == order(None)
    assert [seed for seed, _ in order(1)] == [1] * 6 + [2] * 6 + [3] * 6, "every setting once before any again"
    firsts = ["".join(name for seed, name in order(1) if seed == number) for number in (1, 2, 3)]
    assert len(set(firsts)) == 3


def test_a_warm_up_of_each_stack_comes_before_all_others_and_is_another_job() -> None:
    asked = jobs(shuffle=1)
    for job in asked:
        job.config.sweep.warm_up = True
    before, rest = (ordered := ordering.with_warm_ups(ordering.shuffled(asked), multirun=True))[:6], ordered[6:]
    assert [job.config.warm_up for job in ordered] == [True] * 6 + [False] * 18
    assert sorted(job.config.stack.name for job in before) == list("abcdef")
    assert {job.overrides[-1] for job in before} == {"warm_up=true"}
    assert [(job.config.seed, job.config.stack.name) for job in rest] == order(1)
    assert len({job.config.config_hash() for job in ordered}) == 24
    with pytest.raises(ConfigError, match=r"sweep\.warm_up=true: has no effect on a single run\. Next: add -m"):
        ordering.with_warm_ups(asked[:1], multirun=False)


def test_a_warm_up_has_a_name_and_a_tag_of_its_own_and_other_jobs_are_called_what_they_were() -> None:
    config = studied.config()
    same = run_setup.run_name(config), run_setup.compared(config), config.config_hash()
    config.sweep.warm_up = True
    assert (run_setup.run_name(config), run_setup.compared(config), config.config_hash()) == same
    config.warm_up = True
    assert run_setup.run_name(config) == f"{same[0]}-warm-up"
    assert run_setup.compared(config) == same[1] | {"timetrial.uncounted": "warm-up"}
