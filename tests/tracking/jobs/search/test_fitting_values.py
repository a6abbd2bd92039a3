"""A request is checked beside values of its axes where it needs one of them."""

from __future__ import annotations

import pytest

import launch
from conf.schema import ConfigError, RunConfig
from tests.support.composing import EIGHT_GPUS, composed
from tracking.jobs.plan import Job
from tracking.jobs.search import checked_request, search_of
from tracking.record import Failure, Result
from tracking.request import checks, refusal


def make(words: list[str]) -> RunConfig:
    return checks.check_job(refusal.declared(composed(words)), words, [], EIGHT_GPUS)


@pytest.mark.parametrize("kind", ["search=quickest", "sweep.until_decided=true"])
@pytest.mark.parametrize(
    ("given", "axes"),
    [
        (["cluster=slurm"], ["gpus=1,2"]),
        (["strategy=fsdp"], ["gpus=2,4"]),
        ([], ["strategy=ddp,fsdp", "gpus=2,4"]),
        (["gpus=0", "cpu_processes=3"], ["global_batch_size=3072,6144"]),
    ],
)
def test_a_request_whose_every_setting_is_valid_is_let_through(kind: str, given: list[str], axes: list[str]) -> None:
    words = [kind, "model=vgg", "dataset=digits", "seed=7", *given]
    config = checked_request(words, axes, launch.parsed_axis, make)
    assert config.seed == 7
    search = search_of(Job(config, words), [], None, axes, launch.parsed_axis, make, 8)
    assert search
    assert search.corners()
    assert search.next_jobs()


def test_a_request_that_no_value_fits_is_refused_by_its_own_words() -> None:
    words = ["search=quickest", "model=vgg", "dataset=digits", "strategy=fsdp", "gpus=1"]
    with pytest.raises(ConfigError, match=r"^strategy=fsdp: shards a model over several"):
        checked_request(words, ["batch_size=16,32"], launch.parsed_axis, make)


def test_an_interval_is_tried_at_its_lower_end() -> None:
    words = ["search=quickest", "model=vgg", "dataset=digits", "strategy=fsdp"]
    assert checked_request(words, ["gpus=interval(2,4)"], launch.parsed_axis, make).num_gpus() == 2


def test_a_resumed_sweep_decides_with_one_seed_for_a_block() -> None:
    words = ["sweep.until_decided=true", "model=vgg", "dataset=digits", "gpus=0", "seed=3"]
    begun = search_of(Job(make(words), words), [], None, ["batch_size=16,32"], launch.parsed_axis, make, 0)
    assert begun
    first = begun.next_jobs()[0]
    begun.jobs[:] = [first]
    told = ["sweep.resume=ID"]
    resumed = search_of(Job(make(told), told), begun.jobs, None, [], launch.parsed_axis, make, 0)
    assert resumed
    first.result = Result("failed", failure=Failure("crash", "died"))
    first.given_up = True
    [other, *_] = resumed.next_jobs()
    assert other.config.search.block == first.config.search.block
    assert other.config.seed == first.config.seed


def test_settings_of_a_models_batch_size_are_evaluated_after_the_same_samples() -> None:
    words = ["search=quickest", "model=vgg", "dataset=digits", "gpus=0", "eval_every_steps=50"]
    with pytest.raises(ConfigError, match=r"^eval_every_steps=50: the samples in a step differ"):
        search_of(Job(make(words), words), [], None, ["model.batch_size=16,32"], launch.parsed_axis, make, 0)
