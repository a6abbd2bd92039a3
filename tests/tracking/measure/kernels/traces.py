"""Traces as Kineto writes them, made by hand: of a GPU that is not here, with numbers that can be added up."""

from __future__ import annotations

from typing import Any

MAIN, AUTOGRAD, STREAM = 100, 101, 7
FORWARD = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_cudnn"
PRODUCT = "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT"
UPDATE = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<SGD>()"
EXCHANGE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def event(cat: str, name: str, begin: float, dur: float, tid: int = MAIN, correlation: int = 0) -> dict[str, Any]:
    args = {"correlation": correlation} if correlation else {}
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": begin, "dur": dur, "args": args}


def step(number: int, begin: float) -> list[dict[str, Any]]:
    """A step of 1,000 us on a GPU: 100 us wait for data, 650 us of kernels, and 250 us of other gaps.

    The convolution begins at 150, when it is launched late; the product, whose launch is of the thread of the backward
    pass, at 400; the collective is over at 800, and the optimizer runs from 850 to 900.
    """
    at = begin
    return [
        event("user_annotation", f"ProfilerStep#{number}", at, 1000),
        event("user_annotation", "timetrial: data", at, 100),
        event("user_annotation", "Optimizer.step#SGD.step", at + 100, 890),
        event("user_annotation", "timetrial: forward", at + 105, 195),
        event("cpu_op", "aten::cudnn_convolution", at + 120, 60),
        event("cuda_runtime", "cudaLaunchKernel", at + 140, 5, correlation=10 * number + 1),
        event("kernel", FORWARD, at + 150, 200, STREAM, 10 * number + 1),
        event("user_annotation", "timetrial: backward", at + 300, 500),
        event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", at + 360, 100, AUTOGRAD),
        event("cuda_runtime", "cudaLaunchKernel", at + 370, 10, AUTOGRAD, 10 * number + 2),
        event("kernel", PRODUCT, at + 400, 300, STREAM, 10 * number + 2),
        event("kernel", EXCHANGE, at + 650, 150, STREAM + 1, 10 * number + 3),
        event("cuda_runtime", "cudaLaunchKernelExC", at + 500, 5, AUTOGRAD, 10 * number + 3),
        event("cuda_runtime", "cudaLaunchKernel", at + 840, 5, correlation=10 * number + 4),
        event("kernel", UPDATE, at + 850, 50, STREAM, 10 * number + 4),
        event("gpu_user_annotation", f"ProfilerStep#{number}", at + 150, 750, STREAM),
    ]


def of_gpu(num_steps: int = 2) -> dict[str, Any]:
    """Some steps, a kernel of a step before them, and what a trace has besides."""
    events = [event for number in range(num_steps) for event in step(number + 3, 10_000.0 + 1000 * number)]
    earlier = event("kernel", PRODUCT, 9_000.0, 500, STREAM, 1)
    return {
        "schemaVersion": 1,
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
            {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "tid": "PyTorch", "ts": 9_000, "dur": 5_000},
            {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "tid": MAIN, "ts": 10_120, "id": 1},
            earlier,
            *events,
        ],
    }
