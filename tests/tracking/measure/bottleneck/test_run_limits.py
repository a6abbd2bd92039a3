"""The limits of a run from its folder: sensor samples, ceilings, roofline and traffic; and missing inputs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tracking.analysis.audit.journals import JournalFigures
from tracking.base import quantities
from tracking.measure.bottleneck import Ceilings, ceilings, examine, explain, quicker_stack, roofline, verdict_lines
from tracking.measure.bottleneck.quicker_stack import QuickerStack
from tracking.record import Record, journal, run_folder

GPU = {"env.gpu": "NVIDIA H100", "env.gpu_count": "2", "env.cpu": "EPYC", "env.hardware_id": "abc"}
MEASURED = Ceilings(
    environment=GPU,
    ceilings={
        "copy": {"unit": "B/s", "median": 3e12, "counters": {"dram_bandwidth_percentage": 90.0}},
        "matmul/bf16": {"unit": "FLOP/s", "median": 7e14, "counters": {"tensor_activity_percentage": 90.0}},
        "matmul/fp32": {
            "unit": "FLOP/s", "median": 5e13,
            "counters": {"tensor_activity_percentage": 0.0, "fp32_activity_percentage": 75.0},
        },
    },
)  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))


def sample(at: float, **values: float) -> Record:
    """Samples of two GPUs, 10 above and 10 below the given values."""
    each = {
        f"gpu_{index}_{key}": value + spread for key, value in values.items() for index, spread in ((0, 10), (3, -10))
    }
    return Record("metrics", int(1e3 * at), at, values={f"system/{key}": value for key, value in each.items()})


def event(at: float, key: str, **values: object) -> Record:
    return Record("event", int(1e3 * at), at, key, values=dict(values))


def window(at: float) -> Record:
    each = {"rank_ms": [4000.0, 3000.0], "rank_wait_ms": [400.0, 100.0], "step_ms": [40.0] * 100}
    return event(at, "throughput_window", samples=800, **each)


def folder_of(tmp_path: Path, tags: dict[str, str], *samples: Record, precision: str = "bf16") -> Path:
    """A run of 100 s of the clock's, with one epoch of 80 s and an evaluation of 20 s behind it."""
    records = [
        Record("tags", 0, 0.0, values=tags), Record("params", 0, 0.0, values={"precision": precision}),
        event(90, "model_flops", per_sample=1e12, num_devices=2), event(100, "run_start"), event(100, "epoch_start"),
        *(window(at) for at in range(104, 184, 4)), event(180, "epoch_stop"), event(180, "eval_start"),
        event(200, "eval_stop"), event(200, "run_stop"), event(201, "gradient_exchange", mean_ms=2.0), *samples,
    ]  # fmt: skip
    log = journal.Journal(tmp_path / run_folder.JOURNAL)
    for record in sorted(records, key=lambda record: record.clock_sec):
        log.append(record)
    log.close()
    return tmp_path


def journal_metrics(folder: Path) -> dict[str, float]:
    rows = (record.values for record, _ in journal.read(folder / run_folder.JOURNAL) if record.kind == "metrics")
    return {key: value for values in rows for key, value in values.items()}


BUSY = {
    "engine_activity_percentage": 88.0, "dram_bandwidth_percentage": 45.0, "tensor_activity_percentage": 22.5,
    "nvlink_transmit_megabytes_per_sec": 100.0,
}  # fmt: skip
SAMPLES = [sample(at, **BUSY) for at in range(90, 181, 10)] + [sample(200, **dict.fromkeys(BUSY, 10.0))]


def test_the_shares_are_of_the_samples_in_the_training(tmp_path: Path) -> None:
    ceilings.save(MEASURED)
    folder = folder_of(tmp_path, GPU, *SAMPLES)
    why = explain(folder)
    assert why["shares"] == pytest.approx(
        # 8 s of waiting; 2,000 exchanges of 2 ms; idle for 12 % of 80 s, less the waiting; 45 of 90 % of 80 s; the rest
        # of the memory's 80 s is of the tensor cores, up to 25 % of them
        {"evaluation": 0.2, "checkpoint": 0.0, "data": 0.08, "exchange": 0.04, "host": 0.016, "dram": 0.4,
         "tensor": 0.2, "unknown": 0.064}
    )  # fmt: skip
    assert why["cause"] == "dram"
    assert why["evidence"]["gpu_dram_bandwidth_percentage"] == 45.0
    assert why["missing"] == []
    assert ceilings.read(folder / "ceilings.json") == MEASURED
    metrics = journal_metrics(folder)
    assert metrics["bottleneck/dram_fraction"] == 0.4
    # 20 windows of 800 samples in 80 s, on two GPUs; 45 % of the counter at 1/30 TB/s for each percent.
    assert metrics["roofline/flops_per_sec_per_device"] == pytest.approx(200 * 1e12 / 2)
    assert metrics["roofline/dram_bytes_per_sec_per_device"] == pytest.approx(45 * 3e12 / 90)
    assert metrics["roofline/flops_per_byte"] == pytest.approx(1e14 / 1.5e12)
    assert metrics["traffic/nvlink_transmit_peak_megabytes_per_sec"] == 200.0  # both links' sum
    assert metrics["traffic/nvlink_transmit_total_megabytes"] == pytest.approx(80 * 200 + 20 * 20)


@pytest.mark.parametrize(
    ("gpu", "precision", "share"),
    [("NVIDIA H100", "bf16", 1 / 7), ("NVIDIA H100", "fp32", 2), ("NVIDIA H200", "bf16", None)],
)
def test_where_no_peak_is_known_the_measured_ceiling_is_the_reference(
    tmp_path: Path, gpu: str, precision: str, share: float | None
) -> None:
    tags = GPU | {"env.gpu": gpu}
    ceilings.save(replace(MEASURED, environment=tags))
    folder = folder_of(tmp_path, tags, *SAMPLES, precision=precision)
    explain(folder)
    said = journal_metrics(folder).get("ceilings/flops_utilization")  # 1e14 FLOP/s of a device
    assert said == (None if share is None else pytest.approx(share))
    assert quantities.quantity("ceilings/flops_utilization").heading == "FLOPs of measured ceiling (%)"
    assert JournalFigures(folder).value("ceilings/flops_utilization") == said


def test_what_another_node_moved_has_its_name(tmp_path: Path) -> None:
    """Its monotonic clock is another; its clock on the wall is the same."""
    folder = folder_of(tmp_path, GPU, *SAMPLES)
    log = journal.Journal(folder / "journal-second.jsonl")
    for at in range(90, 221, 10):
        rates = {f"system/second/gpu_{gpu}_pcie_receive_megabytes_per_sec": 5.0 + gpu for gpu in (0, 3)}
        log.append(Record("metrics", 1000 * at, 7000.0 + at, values=rates))
    log.close()
    explain(folder)
    metrics = journal_metrics(folder)
    assert metrics["traffic/second/pcie_receive_total_megabytes"] == pytest.approx(13 * 100)
    assert metrics["traffic/second/pcie_receive_peak_megabytes_per_sec"] == 13.0
    assert not any(key.startswith("traffic/pcie") for key in metrics)


def test_samples_of_an_attempt_on_another_clock_say_nothing_of_the_last(tmp_path: Path) -> None:
    """Where the machine was started anew, its clock may show the same seconds once more."""
    folder = folder_of(tmp_path, GPU, *SAMPLES)
    last = (folder / run_folder.JOURNAL).read_text()
    (folder / run_folder.JOURNAL).unlink()
    log = journal.Journal(folder / run_folder.JOURNAL)
    for at in range(90, 201, 10):
        log.append(sample(at, **dict.fromkeys(BUSY, 1000.0)))
    log.append(event(10, "resume", epoch_num=1))
    log.close()
    with (folder / run_folder.JOURNAL).open("a") as file:
        file.write(last)
    why = explain(folder)
    assert why["evidence"]["gpu_dram_bandwidth_percentage"] == 45.0
    assert journal_metrics(folder)["traffic/nvlink_transmit_peak_megabytes_per_sec"] == 200.0


def test_the_cores_for_fp32_are_a_limit_of_runs_in_fp32_alone(tmp_path: Path) -> None:
    ceilings.save(MEASURED)
    busy = BUSY | {
        "dram_bandwidth_percentage": 22.5,
        "tensor_activity_percentage": 0.0,
        "fp32_activity_percentage": 30.0,
    }
    said = {}
    for precision in ("fp32", "bf16", "own"):
        (tmp_path / precision).mkdir()
        samples = [sample(at, **busy) for at in range(90, 181, 10)]
        said[precision] = explain(folder_of(tmp_path / precision, GPU, *samples, precision=precision))
    # 30 of the 75 % that a matrix product in fp32 reaches, of 80 s; the memory has 22.5 of 90 % of them
    assert said["fp32"]["shares"] | {"fp32": 0.32, "dram": 0.2} == said["fp32"]["shares"]
    assert said["fp32"]["cause"] == "fp32"
    assert said["fp32"]["evidence"]["gpu_fp32_activity_percentage"] == 30.0
    assert "fp32" not in said["bf16"]["shares"]
    assert said["own"]["shares"] == said["fp32"]["shares"], "a script of one's own that leaves the tensor cores idle"


def test_without_ceilings_the_counters_count_against_all_there_is_and_it_says_so(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, GPU, *SAMPLES)
    why = explain(folder)
    assert why["shares"]["dram"] == pytest.approx(0.8 * 0.45)
    assert why["missing"] == ["no ceilings were measured on this hardware: python -m tracking ceilings"]
    assert not (folder / "ceilings.json").exists()
    assert "roofline/flops_per_byte" not in examine(folder).metrics


def test_a_run_that_is_too_short_for_a_sample_names_no_limit_of_the_gpu(tmp_path: Path) -> None:
    why = explain(folder_of(tmp_path, GPU, sample(90, **BUSY)))
    assert why["cause"] == "evaluation"
    assert any("no sample of the GPU" in words for words in why["missing"])


def test_a_run_on_cpus_that_is_too_short_for_a_sample_says_so_too(tmp_path: Path) -> None:
    why = explain(folder_of(tmp_path, {"env.gpu": "none"}, *SAMPLES))
    assert why["missing"] == ["no sample of the CPU lies within the training: it was too short, or samples are off"]


def test_a_gpu_before_hopper_says_what_it_does_not_tell(tmp_path: Path) -> None:
    why = explain(folder_of(tmp_path, GPU, *(sample(at, utilization_percentage=90.0) for at in range(90, 181, 10))))
    assert set(why["shares"]) == {"evaluation", "checkpoint", "data", "exchange", "unknown"}
    assert any("Hopper and later" in words for words in why["missing"])


@pytest.mark.parametrize(
    ("tags", "nodes", "words"),
    [
        ({"env.gpu_count": "1", "overlap_grad_reduce": "true"}, 2, "overlaps the backward pass"),  # a GPU a node
        ({"env.gpu": "none", "overlap_grad_reduce": "true"}, 1, "overlaps the backward pass"),  # several on a CPU
        ({"env.gpu_count": "2", "overlap_grad_reduce": "false"}, 1, "too few steps to time the exchange"),
        ({"env.gpu_count": "2", "strategy": "fsdp"}, 1, "too few steps to time the exchange of weights"),
        ({"env.gpu_count": "1"}, 2, "overlaps the backward pass"),  # another program
        ({"env.gpu_count": "1"}, 1, None),
    ],
)
def test_an_exchange_of_gradients_that_was_not_timed_is_missing(
    tmp_path: Path, tags: dict[str, str], nodes: int, words: str | None
) -> None:
    folder = folder_of(tmp_path, GPU | tags, *SAMPLES, Record("params", 0, 0.0, values={"nodes": nodes}))
    text = (folder / run_folder.JOURNAL).read_text()
    (folder / run_folder.JOURNAL).write_text(
        "".join(line for line in text.splitlines(True) if "gradient_exchange" not in line)
    )
    said = [sentence for sentence in explain(folder)["missing"] if "exchange" in sentence]
    assert len(said) == (words is not None)
    assert all(words in sentence for sentence in said if words)


def test_a_run_whose_flops_nothing_states_says_so(tmp_path: Path) -> None:
    ceilings.save(MEASURED)
    folder = folder_of(tmp_path, GPU, *SAMPLES)
    text = (folder / run_folder.JOURNAL).read_text()
    (folder / run_folder.JOURNAL).write_text(
        "".join(line for line in text.splitlines(True) if "model_flops" not in line)
    )
    why = explain(folder)
    assert why["missing"] == [roofline.NO_FLOPS]
    assert "roofline/dram_bytes_per_sec_per_device" in journal_metrics(folder)
    assert roofline.reason_absent(journal_metrics(folder)) == roofline.NO_FLOPS


def test_a_run_that_never_trained_has_no_why(tmp_path: Path) -> None:
    log = journal.Journal(tmp_path / run_folder.JOURNAL)
    log.append(event(1, "init_start"))
    log.close()
    assert explain(tmp_path) == {}


def test_ceilings_are_those_of_the_same_hardware_else_of_the_same_gpu_and_cpu() -> None:
    ceilings.save(MEASURED)
    assert ceilings.of_hardware(GPU) == MEASURED
    assert ceilings.of_hardware(GPU | {"env.hardware_id": "fewer"}) == MEASURED
    assert ceilings.of_hardware(GPU | {"env.hardware_id": "other", "env.gpu": "NVIDIA H200"}) is None
    ceilings.path_of("abc").write_text(json.dumps({"ceilings": 3}))
    assert ceilings.of_hardware(GPU) is None
    with pytest.raises(ValueError, match="no hardware id for this machine"):
        ceilings.save(Ceilings())


def test_sensors_of_a_rank_are_those_of_the_last_attempt(tmp_path: Path) -> None:
    """Where the machine was started anew, its clock may show the same seconds once more."""
    log = journal.Journal(tmp_path / run_folder.JOURNAL)
    for at in range(100, 201, 10):
        log.append(clocked(at, 50.0, 50.0))
    log.append(event(90, "resume", epoch_num=0))
    held = {"rank_ms": [4000.0] * 2, "rank_exchange_ms": [2000.0, 100.0], "step_ms": [40.0] * 100}
    places = [{"node": "a"}, {"node": "a"}]
    for record in (
        event(100, "run_start"), event(100, "epoch_start"),
        *(event(at, "throughput_window", samples=800, **held) for at in range(101, 109)),
        clocked(110, 90.0, 60.0), clocked(120, 90.0, 60.0), event(200, "epoch_stop"), event(200, "run_stop"),
        event(201, "rank_places", ranks=places),
    ):  # fmt: skip
        log.append(record)
    log.close()
    slow = explain(tmp_path)["slow_rank"]
    assert (slow["rank"], slow["cause"]) == (1, "clock")
    assert "at 60 % of its highest" in slow["words"]


def clocked(at: float, first: float, second: float) -> Record:
    shares = {"system/gpu_0_sm_clock_percentage": first, "system/gpu_1_sm_clock_percentage": second}
    return Record("metrics", int(1e3 * at), at, values=shares)


@pytest.mark.parametrize("values", [{"rank_ms": 3}, {"rank_exchange_ms": [1.0, 2.0], "rank_ms": None}])
def test_a_journal_that_is_not_understood_ends_no_run(tmp_path: Path, values: dict[str, object]) -> None:
    folder = folder_of(tmp_path, GPU, event(150, "throughput_window", rank_wait_ms=[None], **values))
    assert explain(folder) == {}
    assert verdict_lines(folder) == []


@pytest.mark.parametrize("is_ours", [True, False])
def test_advice_names_the_batch_that_fits_and_for_our_runs_a_quicker_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    monkeypatch.setattr(quicker_stack, "of_run", lambda folder: QuickerStack("torch2_15", 2, 1.2))
    idle = {"engine_activity_percentage": 30.0, "memory_usage_percentage": 11.0}  # 21 % of one GPU's memory
    params = {"batch_size": "64"} | ({"compile": "True"} if is_ours else {})
    samples = [sample(at, **idle) for at in range(90, 181, 10)]
    limits = examine(folder_of(tmp_path, GPU, *samples, Record("params", 0, 0.0, values=params))).bottleneck
    assert limits["cause"] == "host"
    assert ("up to batch_size=256 fits, since 64 took 21 %" in limits["next"]) is is_ours
    assert ("stack=torch2_15" in limits["next"]) is is_ours
