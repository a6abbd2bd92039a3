"""Every limit comes with its evidence and an advice that this run has not taken yet."""

from __future__ import annotations

import pytest

from tracking.base.quantities import CAUSES
from tracking.measure.bottleneck.advice import AGAINST_SLOW_RANK, ALONE, STACK_CAUSES, RunOptions, first_try, lines, why
from tracking.measure.bottleneck.quicker_stack import QuickerStack
from tracking.measure.bottleneck.time_shares import Clock

CLOCK = Clock(total=10.0, evaluation=3.0, checkpoint=1.0, training=6.0, data=2.5, exchange=0.5)
OURS = RunOptions(ours=True, precision="fp32", compiled=False)
TUNED = RunOptions(ours=True, precision="bf16", compiled=True)
SCRIPT = RunOptions(ours=False, precision="fp32", compiled=False)


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
    assert first_try("dram", RunOptions(True, "bf16", compiled=False)) == "compile=true"
    assert first_try("host", OURS) == "compile=true"


def test_a_script_is_told_what_to_change_in_it() -> None:
    assert "num_workers" in first_try("data", SCRIPT)
    assert "dataset.num_threads" in first_try("data", RunOptions(True, "fp32", False, dataset="shapes"))
    assert "dataset.num_threads" not in first_try("data", RunOptions(True, "fp32", False, dataset="ratings"))
    assert "torch.compile" in first_try("host", SCRIPT)


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


@pytest.mark.parametrize("params", [{"compile": "True"}, {"compile": "False"}, {}])
def test_what_a_run_was_asked_for_is_read_from_its_params(params: dict[str, str]) -> None:
    options = RunOptions.of({**params, "precision": "tf32", "dataset": "coco", "batch_size": "64"}, 12.5)
    compiled = params.get("compile") == "True"
    assert options == RunOptions("compile" in params, "tf32", compiled, "coco", "batch_size", 64, 12.5)


@pytest.mark.parametrize("cause", ["host", "kernels", "exchange"])
def test_a_larger_batch_is_one_that_fits(cause: str) -> None:
    params = {"compile": "True", "precision": "bf16", "batch_size": "64"}
    advice = first_try(cause, RunOptions.of(params, 21.0))
    assert "up to batch_size=256 fits, since 64 took 21 % of the GPU's memory" in advice
    assert "larger batch" not in first_try(cause, RunOptions.of(params, 46.0)), "twice as much does not fit"
    assert "a larger batch_size" in first_try(cause, RunOptions.of(params)), "its memory was not measured"


def test_a_micro_batch_is_what_a_gpu_holds_at_once() -> None:
    options = RunOptions.of({"compile": "True", "batch_size": "64", "hparams/micro_batch_size": "8"}, 21.0)
    assert "up to model.hparams.micro_batch_size=32 fits" in first_try("kernels", options)
    assert first_try("exchange", options) == "a larger global_batch_size, so that fewer steps exchange gradients"
    for cause in ("update", "data"):
        assert "a larger global_batch_size" in first_try(cause, options)
        assert "a larger batch_size" in first_try(cause, OURS)


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
