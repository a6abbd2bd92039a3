"""A request is checked beside values of its axes where it needs one of them."""

from __future__ import annotations

import pytest

import launch
from conf.schema import ConfigError, RunConfig
from tests.support.composing import EIGHT_GPUS, composed
from tracking.jobs.plan import Job
from tracking.jobs.search import checked_request, search_of
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
