"""From a trace to kernels by time and class, to gaps and to what the host did meanwhile: added up by hand."""

from __future__ import annotations

import ast
import json
import math
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tracking.measure.kernels.traces import EXCHANGE, FORWARD, PRODUCT, UPDATE, event, of_gpu
from tracking.measure import kernels
from tracking.measure.kernels.trace import Span, innermost, overlapping
from tracking.measure.kernels.trace_summary import CLASSES, class_of


def by(rows: list[dict[str, Any]], key: str) -> dict[str, dict[str, Any]]:
    return {row[key]: row for row in rows}


def test_kernels_of_a_gpu_by_time_and_class() -> None:
    summary = kernels.summarize(kernels.parse(of_gpu()))
    assert (summary.on_gpu, summary.num_steps, summary.step_ms) == (True, 2, 1.0)
    rows = by(summary.kernels, "name")
    assert [row["name"] for row in summary.kernels] == [PRODUCT, FORWARD, EXCHANGE, UPDATE]
    assert {name: (row["class"], row["calls"], row["ms"]) for name, row in rows.items()} == {
        PRODUCT: ("matrix product", 1.0, pytest.approx(0.3)),
        FORWARD: ("convolution", 1.0, pytest.approx(0.2)),
        EXCHANGE: ("collective", 1.0, pytest.approx(0.15)),
        UPDATE: ("optimizer", 1.0, pytest.approx(0.05)),
    }
    assert sum(row["share"] for row in summary.kernels) == pytest.approx(1)
    assert sum(row["share"] for row in summary.classes) == pytest.approx(1)
    assert summary.busy_ms == pytest.approx(0.65), "the collective overlaps the product by 50 us"
    assert summary.collective_ms == pytest.approx(0.15)


def test_calls_of_a_step_are_whole_however_many_steps_there_are() -> None:
    summary = kernels.summarize(kernels.parse(of_gpu(num_steps=10)))
    assert {kernel["calls"] for kernel in summary.kernels} == {1.0}


def test_gaps_say_what_the_host_did_meanwhile() -> None:
    summary = kernels.summarize(kernels.parse(of_gpu()))
    gaps = {(row["phase"], row["host"]): pytest.approx(1000 * row["ms"]) for row in summary.gaps}
    assert gaps == {
        ("data", "Python"): 100,
        ("optimizer", "Python"): 5 + 50 - 5 + 90,  # 100 to 105, 800 to 850 without the launch, 900 to 990
        ("optimizer", "cudaLaunchKernel"): 5,
        ("forward", "Python"): 15,
        ("forward", "aten::cudnn_convolution"): 20 + 5,
        ("forward", "cudaLaunchKernel"): 5,
        ("backward", "Python"): 10,  # 350 to 360: no thread does anything
        ("backward", "autograd::engine::evaluate_function: MmBackward0"): 30,
        ("backward", "cudaLaunchKernel"): 10,
        ("rest of the step", "Python"): 10,
    }
    assert sum(row["ms"] for row in summary.gaps) + summary.busy_ms == pytest.approx(summary.step_ms)


def test_a_cpus_innermost_operators_stand_for_kernels() -> None:
    events = [
        event("user_annotation", "ProfilerStep#3", 0, 100),
        event("user_annotation", "timetrial: forward", 10, 80),
        event("cpu_op", "aten::linear", 20, 40),
        event("cpu_op", "aten::addmm", 25, 30),
        event("cpu_op", "aten::relu", 70, 10),
        event("cpu_op", "aten::index", 0, 90, tid=999),  # a thread that loads data
        event("user_annotation", "gloo:all_reduce", 75, 10, tid=998),
    ]
    summary = kernels.summarize(kernels.parse({"traceEvents": events}))
    assert not summary.on_gpu
    rows = {row["name"]: (row["class"], pytest.approx(1000 * row["ms"])) for row in summary.kernels}
    assert rows == {
        "aten::addmm": ("matrix product", 30),
        "aten::linear": ("matrix product", 10),
        "aten::relu": ("elementwise", 10),
        "gloo:all_reduce": ("collective", 10),
    }
    assert summary.busy_ms == pytest.approx(0.055)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8>",
            "matrix product",
        ),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nt", "matrix product"),
        ("sm90_xmma_dgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc", "convolution"),
        ("cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816wgrad_optimized>", "convolution"),
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float>", "convolution"),
        ("void cudnn::ops::nchwToNhwcKernel<__half, float>", "copy"),
        ("Memcpy HtoD (Pinned -> Device)", "copy"),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float>", "copy"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>", "attention"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention)", "attention"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", "normalisation"),
        ("triton_red_fused__native_batch_norm_legit_functional_5", "normalisation"),
        ("triton_poi_fused__native_batch_norm_legit_functional_relu_7", "elementwise"),
        ("triton_per_fused_mean_12", "reduction"),
        ("triton_tem_fused_mm_3", "matrix product"),
        ("triton_tem_fused_convolution_3", "convolution"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "elementwise"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", "reduction"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float", "collective"),
        ("void at::native::index_elementwise_kernel<128, 4>", "elementwise"),
        ("nms_kernel", "other"),
        ("_there_and_back", "matrix product"),
        ("_to_rows", "matrix product"),
        ("_to_weight", "matrix product"),
        ("_to_factors", "other"),
        ("_groups", "other"),
        ("aten::mkldnn_convolution", "convolution"),
        ("aten::convolution_backward", "convolution"),
        ("aten::native_batch_norm_backward", "normalisation"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("aten::_foreach_add_", "elementwise"),
        ("aten::max_pool2d_with_indices", "other"),
    ],
)
def test_the_class_of_a_kernel(name: str, kind: str) -> None:
    assert class_of(name, "forward") == kind
    assert class_of(name, "optimizer") == ("collective" if kind == "collective" else "optimizer")
    assert kind in CLASSES


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        ("attention_triton", "attention"),
        ("additive_attention_triton", "attention"),
        ("stem/norm_relu_pool_triton", "normalisation"),
    ],
)
def test_our_own_kernels_have_names_that_say_their_class(module: str, kind: str) -> None:
    tree = ast.parse((Path(__file__).parents[4] / "trainers" / "ops" / f"{module}.py").read_text())
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    launched = {ast.unparse(call.value) for call in calls if isinstance(call, ast.Subscript)}  # name[grid](...)
    assert launched
    assert {class_of(name, "forward") for name in launched} == {kind}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=12), st.randoms(use_true_random=False))
def test_what_is_innermost_covers_the_same_time_once(rows: list[tuple[int, int]], shuffler: random.Random) -> None:
    spans = [Span(str(place), begin, begin + dur) for place, (begin, dur) in enumerate(rows)]
    shuffler.shuffle(spans)
    pieces = innermost(spans)
    assert all(before.end <= after.begin for before, after in pairwise(pieces))
    covered = {time for span in spans for time in range(int(span.begin), int(span.end))}
    assert sum(piece.end - piece.begin for piece in pieces) == len(covered)
    assert sum(span.end - span.begin for span in overlapping(pieces, 10, 30)) == len(covered & set(range(10, 30)))


def test_the_slowest_rank_is_the_one_that_others_wait_for() -> None:
    ranks = [{"step_ms": 10.0, "collective_ms": 4.0}, {"step_ms": 10.1, "collective_ms": 0.5}]
    assert kernels.slowest(ranks) == 1


def test_a_profile_is_read_back_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    summary = kernels.summarize(kernels.parse(of_gpu())).plain()
    kernels.write(tmp_path, kernels.Profile(asked_steps=20, num_steps=2, summaries={"0": summary}, notes=["few"]))
    text = (tmp_path / kernels.PROFILE).read_text()
    read = kernels.read(text)
    assert read.first == summary
    assert read.notes == ["few"]
    table = (tmp_path / kernels.KERNELS).read_text().splitlines()
    assert table[0] == "rank,kernel,class,calls_per_step,ms_per_step,share"
    assert len(table) == 5
    for damaged in (
        "",
        "[]",
        "{}",
        text[:200],
        text.replace('"share"', '"shares"'),
        '{"asked_steps": 1, "num_steps": 1}',
    ):
        with pytest.raises(ValueError, match=r"profile\.json: is damaged"):
            kernels.read(damaged)


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.sampled_from([0, -1, 10**400, "a"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["0", "name", "ms"]), inner),
    max_leaves=4,
)


@given(st.data())
def test_any_json_in_the_place_of_a_part_is_shown_or_refused(data: st.DataObject) -> None:
    summary = kernels.summarize(kernels.parse(of_gpu())).plain()
    plain: Any = json.loads(json.dumps({"asked_steps": 2, "num_steps": 2, "summaries": {"0": summary}, "notes": ["x"]}))
    part, place = plain, data.draw(st.sampled_from(sorted(plain)))
    while isinstance(part[place], dict | list) and part[place] and data.draw(st.booleans()):
        part = part[place]
        place = data.draw(st.sampled_from(sorted(part) if isinstance(part, dict) else range(len(part))))
    part[place] = data.draw(VALUES)
    try:
        profile = kernels.read(json.dumps(plain))
    except ValueError:
        return
    assert profile.words()


@pytest.mark.parametrize(
    ("key", "value"),
    [("step_ms", 0), ("step_ms", "a"), ("busy_ms", None), ("busy_ms", -1), ("kernels", {}), ("classes", [3]),
     ("step_ms", 10**400), ("step_ms", math.nan), ("gaps", [{"host": 1}])],
)  # fmt: skip
def test_a_profile_with_a_figure_that_is_none_names_it(key: str, value: Any) -> None:
    summary = kernels.summarize(kernels.parse(of_gpu())).plain() | {key: value}
    with pytest.raises(ValueError, match=rf"profile.json: is damaged \(rank 0: {key}"):
        kernels.read(json.dumps({"asked_steps": 2, "num_steps": 2, "summaries": {"0": summary}}))


def test_what_a_killed_worker_left_of_a_trace_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f"{kernels.SCRATCH}x7"
    left.mkdir()
    (left / "trace.json").write_text("{")
    (tmp_path / kernels.PROFILE).write_text("{}")
    kernels.remove_scratch(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [kernels.PROFILE]


def test_a_trace_without_steps_is_none() -> None:
    with pytest.raises(ValueError, match="has no step"):
        kernels.parse({"traceEvents": [event("kernel", PRODUCT, 0, 1)]})
