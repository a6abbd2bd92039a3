"""The catalogue says of every metric what this list says, which was written by hand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from conf import metric
from conf.metric import HIGHER, LOWER
from tests.support.commands import ROOT
from tracking.base import quantities, sensor_headings
from tracking.base.quantities import CATALOGUE, better, quantity
from tracking.base.time_parts import COMPILE_PARTS, INIT_PARTS

# By key, which way is better; None where neither way is.
DIRECTIONS = {
    "bottleneck/checkpoint_fraction": None,
    "bottleneck/data_fraction": None,
    "bottleneck/dram_fraction": None,
    "bottleneck/evaluation_fraction": None,
    "bottleneck/exchange_fraction": None,
    "bottleneck/fp32_fraction": None,
    "bottleneck/gate_fraction": None,
    "bottleneck/gc_fraction": None,
    "bottleneck/host_fraction": None,
    "bottleneck/imbalance_fraction": None,
    "bottleneck/kernels_fraction": None,
    "bottleneck/latency_fraction": None,
    "bottleneck/neighbours_fraction": None,
    "bottleneck/power_fraction": None,
    "bottleneck/processor_fraction": None,
    "bottleneck/selfplay_fraction": None,
    "bottleneck/tensor_fraction": None,
    "bottleneck/unknown_fraction": None,
    "bottleneck/update_fraction": None,
    "ceilings/flops_utilization": "higher",
    "ceilings/slowest_pair_megabytes_per_sec": None,
    "checkpoint/num_failed": "lower",
    "cost/sweep_usd": "lower",
    "cost/to_accuracy_usd": "lower",
    "cost/usd": "lower",
    "energy/co2_grams": "lower",
    "energy/host_joules": "lower",
    "energy/joules": "lower",
    "energy/kwh": "lower",
    "energy/joules_per_sample": "lower",
    "energy/to_accuracy_co2_grams": "lower",
    "energy/to_accuracy_joules": "lower",
    "energy/to_accuracy_kwh": "lower",
    "epoch": None,
    "epochs/to_accuracy": "lower",
    "epochs/trained": "lower",
    "evaluations/censored": None,
    "evaluations/to_accuracy": "lower",
    "goodput/checkpoint_fraction": LOWER,
    "goodput/compile_fraction": LOWER,
    "goodput/data_fraction": LOWER,
    "goodput/end_fraction": LOWER,
    "goodput/evaluation_fraction": LOWER,
    "goodput/gate_fraction": LOWER,
    "goodput/idle_fraction": LOWER,
    "goodput/lost_fraction": LOWER,
    "goodput/queue_fraction": LOWER,
    "goodput/selfplay_fraction": LOWER,
    "goodput/start_fraction": LOWER,
    "goodput/train_fraction": HIGHER,
    "memory/peak_allocated_bytes": "lower",
    "resume/count": "lower",
    "resume/down_sec": "lower",
    "resume/lost_sec": "lower",
    "roofline/dram_bytes_per_sec_per_device": None,
    "roofline/flops_per_byte": None,
    "roofline/flops_per_sec_per_device": None,
    "system/cpu_utilization_percentage": None,
    "target_reached": "higher",
    "throughput/data_wait_fraction": "lower",
    "throughput/model_flops_utilization": "higher",
    "throughput/samples_per_sec": "higher",
    "throughput/samples_per_sec_per_device": "higher",
    "throughput/source_tokens_per_sec": "higher",
    "throughput/step_ms_after_evaluation": "lower",
    "throughput/step_ms_p50": "lower",
    "throughput/step_ms_p90": "lower",
    "throughput/step_ms_p99": "lower",
    "throughput/target_tokens_per_sec": "higher",
    "throughput/tokens_per_sec": "higher",
    "throughput/tokens_per_sec_per_device": "higher",
    "time/censored_sec": None,
    "time/checkpoint_sec": "lower",
    "time/compile_autotune_sec": "lower",
    "time/compile_backend_sec": "lower",
    "time/compile_graph_capture_sec": "lower",
    "time/compile_sec": "lower",
    "time/compile_trace_sec": "lower",
    "time/compile_warmup_sec": "lower",
    "time/epoch_sec": "lower",
    "time/eval_sec": "lower",
    "time/evaluation_interval_sec": "lower",
    "time/index_sec": "lower",
    "time/init_data_sec": "lower",
    "time/init_import_sec": "lower",
    "time/init_launch_sec": "lower",
    "time/init_model_sec": "lower",
    "time/init_process_group_sec": "lower",
    "time/init_rest_sec": "lower",
    "time/init_sec": "lower",
    "time/init_trainer_sec": "lower",
    "time/resumed_to_accuracy_sec": "lower",
    "time/resumed_to_accuracy_train_sec": "lower",
    "time/to_accuracy_sec": "lower",
    "time/to_accuracy_train_sec": "lower",
    "time/train_sec": "lower",
    "train/loss": "lower",
    "utilization/cpu_memory_megabytes_per_sec": None,
    "utilization/gpu_dram_bandwidth_percentage": None,
    "utilization/gpu_nvlink_transmit_megabytes_per_sec": None,
    "utilization/gpu_pcie_transmit_megabytes_per_sec": None,
    "utilization/gpu_sm_activity_percentage": None,
    "utilization/gpu_tensor_activity_percentage": None,
    "utilization/gpu_utilization_percentage": None,
    "utilization/run_cpu_percentage": None,
    "world_size": None,
}
# Keys without a row of their own in the documentation: families, and keys of published figures only.
IN_FAMILIES = (
    *(quantities.BOTTLENECK, quantities.GOODPUT, quantities.UTILIZATION, quantities.ROOFLINE, quantities.SYSTEM),
    quantities.THROUGHPUT_TOKENS_PER_SEC_PER_DEVICE,
)


def test_every_key_has_the_direction_of_the_list_written_by_hand() -> None:
    assert {key: better(key) for key in CATALOGUE} == DIRECTIONS
    assert {HIGHER, LOWER, None} == {*DIRECTIONS.values()}


def test_a_constant_is_named_like_its_key() -> None:
    of_parts = {*map(quantities.init_part, INIT_PARTS), *map(quantities.compile_part, COMPILE_PARTS)}
    for key in CATALOGUE.keys() - of_parts:
        if not key.startswith((quantities.BOTTLENECK, quantities.GOODPUT)):
            assert getattr(quantities, key.upper().replace("/", "_")) == key


def test_no_two_columns_have_the_same_heading() -> None:
    headings = [facts.heading for facts in CATALOGUE.values() if facts.heading]
    assert len(headings) == len({*headings}) > 30
    assert all(f"{1.0:{facts.digits}}" for facts in CATALOGUE.values())


# Endings that once decided; each of these was wrong for some metric.
@pytest.mark.parametrize(
    "name", ["fid", "bits_per_byte", "val_loss_epoch", "latency_ms", "exact_answer", "power", "val_loss", "accuracy"]
)
@pytest.mark.parametrize("prefix", ["eval/", "eval/best_", "test/", ""])
def test_the_direction_of_a_users_metric_is_declared_and_never_guessed(name: str, prefix: str) -> None:
    assert better(prefix + name) is None
    assert better(prefix + name, {name: LOWER}) == LOWER
    assert better(prefix + name, {name: HIGHER, "other": LOWER}) == HIGHER


def test_no_declaration_changes_the_direction_of_a_metric_of_our_own() -> None:
    declared = {"time/train_sec": HIGHER, "system/gpu_0_power_usage_watts": LOWER, "throughput/other": HIGHER}
    assert better("time/train_sec", declared) == LOWER
    assert better("system/gpu_0_power_usage_watts", declared) is None
    assert better("throughput/other", declared) is None


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("system/gpu_3_power_usage_watts", "W"),
        ("system/gpu_0_utilization_percentage", "%"),
        ("system/node-1/disk_read_megabytes_per_sec", "MB/s"),
        ("traffic/disk_read_total_megabytes", "MB"),
        ("system/run_busiest_process_cores", "cores"),
        ("system/unheard_of", ""),
        ("eval/latency_ms", ""),
        ("lag_sec", ""),
        ("time/train_sec", "s"),
    ],
)
def test_the_unit_of_a_family_and_no_unit_of_a_users_metric(key: str, unit: str) -> None:
    assert quantity(key).unit == unit


def test_a_sensor_has_the_heading_of_its_family_on_every_node_and_gpu() -> None:
    for key in ("system/gpu_0_sm_activity_percentage", "system/node-1/gpu_11_sm_activity_percentage"):
        assert quantity(key).heading == "SM activity (%)"
    assert quantity("system/disk_write_megabytes_per_sec").heading == "disk, read and written (MB/s)"
    assert quantity("system/gpu_0_power_usage_watts").heading == ""
    for words, pattern in sensor_headings.HEADINGS.items():
        (ending,) = (ending for ending, unit in quantities.UNITS.items() if pattern.endswith(ending))
        assert words.endswith(f"({quantities.UNITS[ending]})")


def test_a_value_is_shown_with_its_unit_and_digits() -> None:
    assert quantities.text("time/to_accuracy_sec", 12.3456) == "12.35 s"
    assert quantities.text("time/to_accuracy_sec", 0.064213) == "0.0642 s"
    assert quantities.text("throughput/samples_per_sec", 12345.6) == "12,346 samples/s"
    assert quantities.text("cost/to_accuracy_usd", 0.12345) == "0.1235 USD"
    assert quantities.text("eval/accuracy", 0.98765) == "0.9877"
    assert [quantity(f"{prefix}top 5").heading for prefix in ("eval/best_", "eval/", "test/")] == [
        "best top 5", "last top 5", "",
    ]  # fmt: skip


def test_directions_are_read_as_they_were_written() -> None:
    declared = {"accuracy": HIGHER, "val loss/x": LOWER}
    assert metric.from_tag(metric.to_tag(declared)) == declared
    assert metric.from_tag("") == metric.from_tag("fid=sideways,,=lower") == {}


def documented() -> dict[str, tuple[str, str]]:
    """Unit and direction of each key in the table of docs/measurement.md."""
    table = (ROOT / "docs/measurement.md").read_text().partition("## Metrics")[2].partition("\n## ")[0]
    table = table.partition("\n### ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\| `.*\|$", table, re.M)]
    return {key: (unit, way) for keys, unit, way, *_ in rows for key in re.findall(r"`([a-z][^`*<\s]*)`", keys)}


def test_the_table_of_the_documentation_says_what_the_catalogue_says() -> None:
    rows = documented()
    assert rows.keys() == {key for key in CATALOGUE if not key.startswith(IN_FAMILIES)}
    for key, (unit, way) in rows.items():
        facts = CATALOGUE[key]
        assert (unit.removeprefix("0 to 1").removeprefix("0, 1"), way) == (facts.unit, facts.better or ""), key


def literals() -> Iterator[tuple[Path, str]]:
    """Strings in the code that are no docstrings."""
    for path in [*(ROOT / "tracking").rglob("*.py"), *(ROOT / "trainers").rglob("*.py"), ROOT / "launch.py"]:
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        texts = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
                yield path, node.value


def test_no_other_module_writes_a_key() -> None:
    """Else a typo in one would be a metric of its own."""
    start = re.compile(rf"(?:{'|'.join((quantities.EVAL, 'train/', *quantities.FAMILIES))})[\w.<{{]*")
    named = CATALOGUE.keys() - {quantities.EPOCH}  # It is also the name of an option, and of an event's value.
    wrong = [
        f"{path.relative_to(ROOT)}: {text}"
        for path, text in literals()
        if path.name != "quantities.py" and (text in named or start.fullmatch(text))
    ]
    assert not [line for line in wrong if "train/<class>" not in line]
