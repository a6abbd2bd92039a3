"""What PyTorch's compiler says of its own time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from trainers.loop.warmup import compile_times


def test_what_lies_within_another_part_counts_once() -> None:
    seconds = {
        "_compile.compile_inner": 20.0,
        "OutputGraph.call_user_compiler": 12.0,
        "backward._backward_impl": 5.0,
        "mm_template_autotuning": 3.0,  # within the backend's compilation
        "CachingAutotuner.benchmark_all_configs": 2.0,  # at a kernel's first launch
        "CUDAGraphTreeManager.record_function": 1.5,
        "CUDAGraphNode.record": 1.0,  # within the one above
        "Scheduler.codegen": 9.0,
    }
    assert compile_times.parts(seconds) == {
        "trace_sec": 8.0, "backend_sec": 14.0, "autotune_sec": 5.0, "graph_capture_sec": 1.0,
    }  # fmt: skip


def test_what_a_version_of_pytorch_does_not_tell_is_absent() -> None:
    assert compile_times.parts({}) == {}
    assert compile_times.parts({"_compile.compile_inner": 4.0}) == {"trace_sec": 4.0}


@pytest.mark.slow
@pytest.mark.exhaustive  # tests/launch/test_compile_cache.py compiles and has the parts of that time, too
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # The compiler's own imports warn.
def test_a_step_is_compiled_once_and_then_taken_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    network = nn.Linear(4, 4)

    def step() -> dict[str, float]:
        torch._dynamo.reset()  # A new process begins so.
        before = compile_times.so_far()
        torch.compile(network)(torch.ones(2, 4)).sum().backward()
        return compile_times.since(before)

    first, second = step(), step()
    assert first["num_compiled"] > 0 == first["num_cached"]
    assert second["num_cached"] > 0 == second["num_compiled"]
    assert first["trace_sec"] > 0 < first["backend_sec"]
    assert "graph_capture_sec" not in first  # a CPU has no CUDA graphs
