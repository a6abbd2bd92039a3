"""Every limit comes with its evidence and an advice that this run has not taken yet."""

from __future__ import annotations

import pytest

from tests.support import studied
from tracking.base.time_parts import CAUSES
from tracking.measure.bottleneck.advice import ALONE, STACK_CAUSES, first_try, lines, why
from tracking.measure.bottleneck.quicker_stack import QuickerStack
from tracking.measure.bottleneck.run_options import RunOptions
from tracking.measure.bottleneck.slow_rank import AGAINST_SLOW_RANK
from tracking.measure.bottleneck.time_shares import OWN, Clock

CLOCK = Clock(total=10.0, evaluation=3.0, checkpoint=1.0, training=6.0, data=2.5, exchange=0.5)
OURS = RunOptions({"compile": "False", "precision": "fp32", "gpus": "1"})
TUNED = RunOptions({"compile": "True", "precision": "bf16", "gpus": "1"})
SCRIPT = RunOptions({"precision": "fp32", "gpus": "1"})


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("options", [OURS, TUNED, SCRIPT])
def test_each_cause_has_an_advice_and_a_known_one_its_evidence(cause: str, options: RunOptions) -> None:
    assert first_try(cause, options)
    assert bool(why(cause, CLOCK, {})) is (cause != "unknown")


def test_no_advice_is_what_the_run_does_already() -> None:
    for cause in CAUSES:
        assert "precision=bf16" not in first_try(cause, TUNED)
        assert "compile" not in first_try(cause, TUNED)
    assert first_try("dram", OURS) == "precision=bf16"
    assert first_try("dram", RunOptions({**OURS.params, "precision": "bf16"})) == "compile=true"
    assert first_try("host", OURS) == "compile=true"


def test_a_script_is_told_what_to_change_in_it() -> None:
    assert "num_workers" in first_try("data", SCRIPT)
    assert "torch.compile" in first_try("host", SCRIPT)


@pytest.mark.parametrize(
    ("given", "cores", "named"), [(1, 16, 14), (14, 16, 0), (16, 16, 0), (None, 16, 0), (1, 2, 0), (1, 0, 0)]
)
def test_more_decoding_threads_are_advised_only_up_to_the_default(given: int | None, cores: int, named: int) -> None:
    config = studied.config(gpus=1)
    config.dataset.num_threads = given
    advice = first_try("data", RunOptions({**OURS.params, "dataset": "shapes"}, config, cores=cores))
    assert (f"dataset.num_threads={named}," in advice) is (named > 0)
    assert ("more cores" in advice) is (named == 0)


def test_the_evidence_has_its_figures() -> None:
    assert "2.5 of 10 s" in why("data", CLOCK, {})
    assert "3 of 10 s" in why("evaluation", CLOCK, {})
    assert "62 %" in why("dram", CLOCK, {"gpu_dram_bandwidth_percentage": 62.0})


@pytest.mark.parametrize(
    ("neighbours", "percent", "first"),
    [
        ("cpu: 31 % of 2 cores (python)", 31.0, True), ("", 31.0, True), ("gpu 0: 1 process", 4.0, False),
        ("", 4.0, False),
    ],
)  # fmt: skip
def test_after_a_run_on_a_shared_machine_a_run_alone_comes_before_any_advice(
    neighbours: str, percent: float, first: bool
) -> None:
    means = {"run_cpu_percentage": 60.0, "neighbours_cpu_percentage": percent}
    limits = lines("processor", "", CLOCK, means, OURS, {}, neighbours)
    assert limits["next"].startswith(ALONE) is limits.get("shared_cores", False) is first
    assert limits["next"].endswith(first_try("processor", OURS))


@pytest.mark.parametrize("cause", ["host", "kernels", "exchange"])
def test_a_larger_batch_is_one_that_fits(cause: str) -> None:
    params = {"compile": "True", "precision": "bf16", "batch_size": "64"}
    advice = first_try(cause, RunOptions(params, memory_percent=21.0))
    assert "up to batch_size=256 fits, since 64 took 21 % of the GPU's memory" in advice
    assert "larger batch" not in first_try(cause, RunOptions(params, memory_percent=46.0)), "twice does not fit"
    assert "a larger batch_size" in first_try(cause, RunOptions(params)), "its memory was not measured"


@pytest.mark.parametrize(("samples", "fits"), [(0, 256), (1000, 256), (200, 128), (100, 0)])
def test_no_batch_is_larger_than_an_epoch(samples: int, fits: int) -> None:
    params = {**TUNED.params, "batch_size": "64"}
    advice = first_try("kernels", RunOptions(params, memory_percent=21.0, epoch_samples=samples))
    assert (f"batch_size={fits} fits" in advice) is (fits > 0)
    unknown_memory = RunOptions(params, epoch_samples=samples)
    for cause in ("kernels", "update", "data", "exchange"):
        assert ("a larger batch_size" in first_try(cause, unknown_memory)) is (fits > 0), cause


def test_a_micro_batch_is_what_a_gpu_holds_at_once() -> None:
    params = {**TUNED.params, "batch_size": "64", "hparams/micro_batch_size": "8"}
    options = RunOptions(params, memory_percent=21.0)
    assert "up to model.hparams.micro_batch_size=32 fits" in first_try("kernels", options)
    assert first_try("exchange", options) == "a larger global_batch_size, so that fewer steps exchange gradients"
    for cause in ("update", "data"):
        assert "a larger global_batch_size" in first_try(cause, options)
        assert "a larger batch_size" in first_try(cause, OURS)


def test_a_micro_batch_of_the_whole_batch_is_not_what_keeps_it_small() -> None:
    params = {**TUNED.params, "gpus": "2", "batch_size": "64", "hparams/micro_batch_size": "1024"}
    assert "up to global_batch_size=512 fits, since 128 took" in first_try("kernels", RunOptions(params, None, 21.0))
    assert "a larger global_batch_size" in first_try("kernels", RunOptions(params))


@pytest.mark.parametrize(("games", "devices", "named"), [(16, 1, True), (16, 2, False), (8, 1, False)])
def test_more_games_at_once_are_advised_only_where_there_are_more(games: int, devices: int, named: bool) -> None:
    params = {"compile": "True", "gpus": str(devices), "hparams/games": str(games), "hparams/games_at_once": "8"}
    for cause in ("selfplay", "host", "kernels"):
        assert ("model.hparams.games_at_once, up to 16" in first_try(cause, RunOptions(params))) is named
    assert "more GPUs" in first_try("selfplay", RunOptions(params))
    assert "more GPUs" not in first_try("selfplay", RunOptions({**params, "gpus": "0", "cpu_processes": "1"}))


def test_short_steps_on_a_cpu_are_made_longer_before_a_gpu_is_bought() -> None:
    params = {"compile": "False", "gpus": "0", "batch_size": "525"}
    short, long = (first_try("processor", RunOptions(params, step_sec=sec)) for sec in (0.004, 0.4))
    assert short == "a larger batch_size, since a step takes only 4 ms; then a GPU (gpus=1), or more cores"
    assert long == "a GPU (gpus=1), or more cores"


def test_a_script_that_keeps_its_precision_to_itself_is_not_said_to_compute_in_fp32() -> None:
    for cause in ("dram", "tensor"):
        assert "if it is not narrow already; then " in first_try(cause, RunOptions({"precision": OWN}))


def test_a_single_evaluation_cannot_be_less_than_one() -> None:
    assert "fewer evaluations" not in first_try("evaluation", RunOptions(OURS.params, num_evaluations=1))
    assert "fewer evaluations" in first_try("evaluation", RunOptions(OURS.params, num_evaluations=2))


@pytest.mark.parametrize("cause", CAUSES)
def test_another_stack_is_advised_only_where_its_kernels_may_help(cause: str) -> None:
    limits = lines(cause, "", CLOCK, {}, TUNED, {}, quicker=QuickerStack("torch2_15", 3, 1.218))
    named = limits["next"].endswith("or stack=torch2_15, on which 3 runs of the same trained 1.22 times as fast")
    assert named is (cause in STACK_CAUSES)


@pytest.mark.parametrize("cause", CAUSES)
def test_no_option_is_named_that_a_script_or_program_does_not_have(cause: str) -> None:
    for option in (
        "eval_every",
        "eval_at",
        "checkpoint_every",
        "profile.",
        "dataset.",
        "precision=",
        "compile=",
        "gpus=",
    ):
        assert option not in first_try(cause, SCRIPT)


@pytest.mark.parametrize(
    ("cause", "slow_cause", "advice"),
    [
        ("imbalance", "gc", AGAINST_SLOW_RANK["gc"]),
        ("unknown", "quota", AGAINST_SLOW_RANK["quota"]),
        ("data", "data", first_try("data", SCRIPT)),
        ("exchange", "computing", f"{first_try('exchange', SCRIPT)}; then {AGAINST_SLOW_RANK['computing']}"),
        ("dram", "computing", first_try("dram", SCRIPT)),
    ],
)  # fmt: skip
def test_what_helps_against_the_largest_limit_comes_before_the_slow_rank(
    cause: str, slow_cause: str, advice: str
) -> None:
    slow = {"cause": slow_cause, "words": "rank 1 waits least"}
    assert lines(cause, "", CLOCK, {}, SCRIPT, slow)["next"] == advice
