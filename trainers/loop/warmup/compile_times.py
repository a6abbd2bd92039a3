"""What PyTorch's compiler did in this process, and how long each part of it took.

PyTorch adds up the seconds of its parts in `torch._dynamo.utils.compilation_time_metrics`, which its `compile_times`
prints, and counts in `counters` what its caches had. The names below are those of PyTorch 2.6 and 2.15.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tracking.machine.environment import inductor_folder
from trainers.ops import compiling

WHOLE, BACKEND, BACKWARD = "_compile.compile_inner", "OutputGraph.call_user_compiler", "backward._backward_impl"
# Within a backend's compilation, and at a kernel's first launch.
OF_TEMPLATES = ("_template_autotuning", "_template_precompiling")
OF_KERNELS = (
    "CachingAutotuner.benchmark_all_configs",
    "CachingAutotuner.coordinate_descent_tuning",
    "CachingAutotuner.combo_sequential_autotune",
)
CAPTURES = ("CUDAGraphNode.record", "CUDAGraphTreeManager.record_function")  # of 2.15; of 2.6, around the same
OURS = "StepGraphs"
# By cache, of a graph with both its passes and of the code of each.
MISSES = (("aot_autograd", "autograd_cache_miss"), ("inductor", "fxgraph_cache_miss"))
HITS = (("aot_autograd", "autograd_cache_hit"), ("inductor", "fxgraph_cache_hit"))


def parts(seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds by part of `start_parts.COMPILE_PARTS`, from those by PyTorch's names, some of which lie in others.

    A part of which no name is known is absent.
    """
    templates = [sec for name, sec in seconds.items() if name.endswith(OF_TEMPLATES)]
    autotuned = templates + [seconds[name] for name in OF_KERNELS if name in seconds]
    captured = [seconds[name] for name in CAPTURES if name in seconds][:1]
    captured += [seconds[OURS]] if OURS in seconds else []
    backend = seconds.get(BACKEND, 0.0)
    spent = {"trace_sec": seconds[WHOLE] - backend} if WHOLE in seconds else {}
    spent |= {"backend_sec": backend + seconds.get(BACKWARD, 0.0) - sum(templates)} if BACKEND in seconds else {}
    spent |= {"autotune_sec": sum(autotuned)} if autotuned else {}
    spent |= {"graph_capture_sec": sum(captured)} if captured else {}
    return {name: max(0.0, sec) for name, sec in spent.items()}


def so_far() -> dict[str, float]:
    """Seconds of this process's compiler by name, and counts of its caches; empty before it is used."""
    module: Any = sys.modules.get("torch._dynamo.utils")
    times: Mapping[str, list[float]] = getattr(module, "compilation_time_metrics", {})
    counters: Mapping[str, Mapping[str, int]] = getattr(module, "counters", {})
    counts = {name: float(counters[group][name]) for group, name in (*HITS, *MISSES) if name in counters.get(group, {})}
    ours = {OURS: sum(compiling.CAPTURES_SEC)} if compiling.CAPTURES_SEC else {}
    return {name: sum(values) for name, values in times.items()} | ours | counts


def since(before: Mapping[str, float]) -> dict[str, float]:
    """What the event `compiled` says: seconds by part, and how many graphs the cache had and lacked."""
    new = {name: value - before.get(name, 0.0) for name, value in so_far().items()}
    hits, misses = (max(new.get(name, 0.0) for _, name in names) for names in (HITS, MISSES))
    return parts(new) | {"num_cached": int(hits), "num_compiled": int(misses)}


def num_cached_graphs() -> int:
    """How many graphs Inductor's cache has, of any model."""
    with suppress(OSError, KeyError):
        return sum(1 for _ in inductor_folder(os.environ).glob("fxgraph/*/*"))
    return 0
