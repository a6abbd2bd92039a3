"""The order in which a sweep's jobs run."""

from __future__ import annotations

from conf.schema import RunConfig, StackConfig, SweepConfig
from tracking.jobs import sweep
from tracking.jobs.sweep import Job


def jobs(shuffle: int | None) -> list[Job]:
    return [
        Job(RunConfig(stack=StackConfig(name), seed=seed, sweep=SweepConfig(shuffle=shuffle)), [])
        for seed in (1, 2, 3)
        for name in "abcdef"
    ]


def order(shuffle: int | None) -> list[tuple[int, str]]:
    return [(job.config.seed, job.config.stack.name) for job in sweep.shuffled(jobs(shuffle))]


def test_without_a_number_it_is_that_of_the_command() -> None:
    assert order(None) == sorted(order(None))


def test_a_number_shuffles_within_each_seed_the_same_way_each_time() -> None:
    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == order(None)
    assert [seed for seed, _ in order(1)] == [1] * 6 + [2] * 6 + [3] * 6, "every setting once before any again"
    firsts = ["".join(name for seed, name in order(1) if seed == number) for number in (1, 2, 3)]
    assert len(set(firsts)) == 3
