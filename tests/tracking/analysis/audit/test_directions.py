"""Which way each metric is better: the report and its check say the same, and what this list says, written by hand."""

from __future__ import annotations

import re

import pytest

from tests.support.commands import ROOT
from tracking.analysis.audit.arithmetic.figure_keys import more_is_better
from tracking.analysis.compare.metric_direction import higher_is_better

# By key, whether more is better. What has no better side, as a world size, is compared as if less were.
DIRECTIONS = {
    "bottleneck/data_fraction": False,
    "ceilings/slowest_pair_megabytes_per_sec": False,
    "checkpoint/num_failed": False,
    "cost/sweep_usd": False,
    "cost/to_accuracy_usd": False,
    "cost/usd": False,
    "energy/joules": False,
    "energy/joules_per_sample": False,
    "energy/to_accuracy_joules": False,
    "epochs/to_accuracy": False,
    "epochs/trained": False,
    "evaluations/censored": False,
    "evaluations/to_accuracy": False,
    "eval/accuracy": True,
    "eval/best_accuracy": True,
    "eval/best_loss": False,
    "eval/error": False,
    "eval/hit_rate": True,
    "eval/word_wer": False,
    "memory/peak_allocated_bytes": False,
    "resume/count": False,
    "resume/down_sec": False,
    "resume/lost_sec": False,
    "roofline/flops_per_sec": False,
    "target_reached": False,
    "test/accuracy": True,
    "test/loss": False,
    "throughput/data_wait_fraction": False,
    "throughput/model_flops_utilization": True,
    "throughput/samples_per_sec": True,
    "throughput/samples_per_sec_per_device": True,
    "throughput/source_tokens_per_sec": True,
    "throughput/step_ms_p50": False,
    "throughput/step_ms_p90": False,
    "throughput/step_ms_p99": False,
    "throughput/target_tokens_per_sec": True,
    "throughput/tokens_per_sec": True,
    "time/censored_sec": False,
    "time/checkpoint_sec": False,
    "time/compile_sec": False,
    "time/epoch_sec": False,
    "time/eval_sec": False,
    "time/evaluation_interval_sec": False,
    "time/index_sec": False,
    "time/init_sec": False,
    "time/resumed_to_accuracy_sec": False,
    "time/resumed_to_accuracy_train_sec": False,
    "time/to_accuracy_sec": False,
    "time/to_accuracy_train_sec": False,
    "time/train_sec": False,
    "train/loss": False,
    "utilization/gpu_utilization_percentage": False,
    "world_size": False,
}


@pytest.mark.parametrize("key", DIRECTIONS)
def test_a_metric_is_better_in_one_direction_for_the_report_and_its_check(key: str) -> None:
    assert (higher_is_better(key), more_is_better(key)) == (DIRECTIONS[key], DIRECTIONS[key])


def test_every_metric_of_the_documentation_is_in_the_list() -> None:
    table = (ROOT / "docs/measurement.md").read_text().partition("## Metrics")[2].partition("## The machine")[0]
    keys = re.findall(r"`((?:[a-z]+/)?[a-z_0-9]+)`", "".join(row.split("|")[1] for row in re.findall(r"\|.*\|", table)))
    documented = {key for key in keys if "/" in key or key in ("world_size", "target_reached")}
    assert len(documented) > 30
    assert documented <= DIRECTIONS.keys()
