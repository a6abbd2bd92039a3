"""Traces that programs wrote, by the profiler of their framework, in the table that ours have."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tracking.measure.kernels.traces import FORWARD, PRODUCT, event, of_gpu
from tracking.measure.kernels import program_trace
from tracking.measure.kernels.trace_summary import class_of

MEGABYTE = 1e6


def of_xla(gpus: int = 1, num_steps: int = 2) -> dict[str, Any]:
    """As jax.profiler writes it: kernels on streams, and the same time once more on a derived thread."""
    events: list[dict[str, Any]] = [{"ph": "M", "pid": 701, "name": "process_name", "args": {"name": "/host:CPU"}}]
    for gpu in range(gpus):
        pid = gpu + 1
        events += [
            {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": f"/device:GPU:{gpu}"}},
            {"ph": "M", "pid": pid, "tid": 9, "name": "thread_name", "args": {"name": "Stream #9(Compute)"}},
            {"ph": "M", "pid": pid, "tid": 10000, "name": "thread_name", "args": {"name": "XLA Ops"}},
        ]
        for step in range(num_steps):
            at = 1000.0 * step
            rows = [(FORWARD, 100, 200), ("loop_add_fusion", 300, 50), ("MemcpyH2D", 400, 50)]
            events += [
                {"ph": "X", "pid": pid, "tid": 9, "name": name, "ts": at + begin, "dur": dur,
                 "args": {"correlation_id": 7, "hlo_op": "x"}}
                for name, begin, dur in rows
            ]  # fmt: skip
            events.append({"ph": "X", "pid": pid, "tid": 10000, "name": "convolution.3", "ts": at + 100, "dur": 300})
    events += [
        {"ph": "X", "pid": 701, "tid": 5, "name": "train", "ts": 10 * step, "dur": 9, "args": {"step_num": str(step)}}
        for step in range(num_steps)
    ]
    return {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*events, {}]}


def by_name(document: dict[str, Any]) -> dict[str, Any]:
    return {row["name"]: row for row in program_trace.summary_of(document)[0].kernels}


def test_of_xlas_trace_the_streams_kernels_count_once() -> None:
    summary, notes = program_trace.summary_of(of_xla())
    assert (summary.on_gpu, summary.num_steps, notes, summary.gaps) == (True, 2, [], [])
    rows = {row["name"]: (row["class"], row["calls"], row["ms"]) for row in summary.kernels}
    assert rows == {
        FORWARD: ("convolution", 1, pytest.approx(0.2)),
        "loop_add_fusion": ("elementwise", 1, pytest.approx(0.05)),
        "Memcpy HtoD": ("copy", 1, pytest.approx(0.05)),
    }
    assert summary.step_ms == pytest.approx((1450 - 100) / 2 / 1e3)  # from the first kernel to the end of the last
    assert summary.busy_ms == pytest.approx(0.3)


def test_of_several_gpus_it_is_the_first_and_without_steps_the_whole() -> None:
    summary, notes = program_trace.summary_of(of_xla(gpus=2, num_steps=1))
    assert notes == ["only the first of 2 GPUs is shown"]
    assert sum(row["calls"] for row in summary.kernels) == 3
    events = [each for each in of_xla()["traceEvents"] if each.get("name") != "train"]
    summary, notes = program_trace.summary_of({"traceEvents": events})
    assert (summary.num_steps, len(notes)) == (1, 1)
    assert "marks no steps" in notes[0]
    assert by_name({"traceEvents": events})[FORWARD]["calls"] == 2


def test_of_kinetos_trace_all_kernels_count_however_late_they_run_but_those_of_an_earlier_step() -> None:
    launch = event("cuda_runtime", "cudaLaunchKernel", 11_990, 5, correlation=42)
    late = [launch, event("kernel", PRODUCT, 12_500, 100, 7, 42)]
    document = of_gpu()  # Its first product is of the step before: its launch is not in the trace.
    document["traceEvents"] = [each | {"pid": 0} for each in [*document["traceEvents"], *late]]
    rows = by_name(document)
    assert rows[PRODUCT]["calls"] == 3 / 2  # two in the marked steps, one behind them
    assert rows[PRODUCT]["ms"] == pytest.approx((300 + 300 + 100) / 2 / 1e3)
    kernels_alone = [each for each in document["traceEvents"] if each.get("cat") == "kernel"]
    assert by_name({"traceEvents": kernels_alone})[PRODUCT]["calls"] == 4


def test_padding_of_layouts_is_a_copy_though_its_arguments_are_named_after_reductions() -> None:
    assert class_of("void nhwcAddPaddingKernel<float>(cudnn::reduced_divisor)", "") == "copy"


def test_names_of_the_linker_are_those_of_cpp() -> None:
    assert program_trace.demangled("_ZN2at6native4fillEi") == "at::native::fill(int)"
    assert program_trace.demangled("_Zbroken") == "_Zbroken"
    assert program_trace.demangled("nvjet_hsh") == "nvjet_hsh"


@pytest.mark.slow
def test_a_real_trace_of_torch_profiler_with_kernels_beside_its_operators(tmp_path: Path) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recording:
        for number in range(2):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                torch.ones(20, 20) @ torch.ones(20, 20)
    recording.export_chrome_trace(str(tmp_path / "trace.json"))
    summary, notes = program_trace.summary_of(program_trace.load(tmp_path / "trace.json", 50 * MEGABYTE))
    assert not summary.on_gpu
    assert "operators of the CPU" in notes[0]
    assert any(row["name"] == "aten::mm" for row in summary.kernels)
    document = json.loads((tmp_path / "trace.json").read_bytes())
    begin = max(each["ts"] for each in document["traceEvents"] if each.get("ph") == "X" and "dur" in each)
    document["traceEvents"] += [
        event("kernel", PRODUCT, begin + 10 * place, 5, 7, 99) | {"pid": 0} for place in range(4)
    ]
    with gzip.open(tmp_path / "made.json.gz", "wt") as file:
        json.dump(document, file)
    summary, notes = program_trace.summary_of(program_trace.load(tmp_path / "made.json.gz", 50 * MEGABYTE))
    assert (summary.on_gpu, summary.num_steps, notes) == (True, 2, [])
    assert [(row["name"], row["calls"]) for row in summary.kernels] == [(PRODUCT, 2)]


def test_what_is_no_trace_is_refused_with_its_reason(tmp_path: Path) -> None:
    whole = json.dumps(of_xla()).encode()
    packed = gzip.compress(whole)
    refusals = {
        "cut.json": (whole[:-9], "is torn, or not JSON"),
        "cut.json.gz": (packed[:-20], "is torn: "),
        "bad.json.gz": (packed[:20] + b"\0\0\0\0" + packed[24:], "is torn: "),
        "other.json": (b'{"a": 1}', "holds no traceEvents"),
        "words.json": (b'["a"]', "holds no traceEvents"),
        "large.json": (b"[" + b" " * 1_000_001 + b"]", "is larger than profile.trace_megabytes=1 unpacked"),
    }
    for name, (content, words) in refusals.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=words):
            program_trace.load(tmp_path / name, MEGABYTE)
    (tmp_path / "list.json").write_text(json.dumps(of_xla()["traceEvents"]))
    assert by_name(dict(program_trace.load(tmp_path / "list.json", MEGABYTE))) == by_name(of_xla())


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "no kernel of a GPU"),
        (
            [{"ph": "X", "pid": 1, "tid": 1, "name": "aten::mm", "cat": "cpu_op", "ts": 0, "dur": 1}],
            "no kernel of a GPU",
        ),
        ([{"ph": "X", "pid": 1, "tid": 1, "name": "k", "cat": "kernel", "ts": 0, "dur": 0}], "take no time"),
        ([{"ph": "X", "pid": 1, "tid": 1, "name": "k", "cat": "kernel", "ts": None, "dur": 0}], "cannot be read"),
    ],
)
def test_a_trace_without_kernels_is_refused(events: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        program_trace.summary_of({"traceEvents": events})
