"""Reads how long each part of PyTorch's compiler took in this process, and how many graphs its cache had.

PyTorch adds up the seconds in `torch._dynamo.utils.compilation_time_metrics`, and counts hits and misses of its caches
in `counters`. PyTorch 2.6 and 2.15 use the names below.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tracking.machine.environment import inductor_folder
from trainers.loop.warmup import kept_traces, parallel
from trainers.loop.warmup.compile_first import TRACES
from trainers.ops import compiling

WHOLE, BACKEND, BACKWARD = "_compile.compile_inner", "OutputGraph.call_user_compiler", "backward._backward_impl"
# Autotuning within the backend's compilation, and at a kernel's first launch.
OF_TEMPLATES = ("_template_autotuning", "_template_precompiling")
OF_KERNELS = (
    "CachingAutotuner.benchmark_all_configs",
    "CachingAutotuner.coordinate_descent_tuning",
    "CachingAutotuner.combo_sequential_autotune",
)
CAPTURES = ("CUDAGraphNode.record", "CUDAGraphTreeManager.record_function")  # in PyTorch 2.15, and in 2.6
CAPTURED_STEPS = "CapturedSteps"
# Seconds of loading and compiling kept traces and of waiting for helpers that do; the number of loaded traces.
KEPT, NUM_LOADED = "KeptTraces", "KeptTraces.loaded"
# Counters by cache: aot_autograd caches a graph with its two passes, Inductor the code of each pass.
MISSES = (("aot_autograd", "autograd_cache_miss"), ("inductor", "fxgraph_cache_miss"))
HITS = (("aot_autograd", "autograd_cache_hit"), ("inductor", "fxgraph_cache_hit"))


def parts(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each part of `time_parts.COMPILE_PARTS`, from the seconds by PyTorch's names.

    Some of PyTorch's intervals contain others. A part is absent if none of its names is known.
    """
    templates = [sec for name, sec in seconds.items() if name.endswith(OF_TEMPLATES)]
    autotuned = templates + [seconds[name] for name in OF_KERNELS if name in seconds]
    captured = [seconds[name] for name in CAPTURES if name in seconds][:1]
    captured += [seconds[CAPTURED_STEPS]] if CAPTURED_STEPS in seconds else []
    backend = seconds.get(BACKEND, 0.0)
    spent = {"trace_sec": seconds[WHOLE] - backend} if WHOLE in seconds else {}
    if BACKEND in seconds or KEPT in seconds:  # KEPT contains the tracing too.
        generated = backend + seconds.get(BACKWARD, 0.0) + seconds.get(KEPT, 0.0)
        spent["backend_sec"] = generated - sum(templates)
    spent |= {"autotune_sec": sum(autotuned)} if autotuned else {}
    spent |= {"graph_capture_sec": sum(captured)} if captured else {}
    return {name: max(0.0, sec) for name, sec in spent.items()}


def so_far() -> dict[str, float]:
    """Return the compiler's seconds and cache counts in this process, by name; empty before it is used."""
    module: Any = sys.modules.get("torch._dynamo.utils")
    times: Mapping[str, list[float]] = getattr(module, "compilation_time_metrics", {})
    counters: Mapping[str, Mapping[str, int]] = getattr(module, "counters", {})
    counts = {name: float(counters[group][name]) for group, name in (*HITS, *MISSES) if name in counters.get(group, {})}
    captures = {CAPTURED_STEPS: sum(compiling.CAPTURES_SEC)} if compiling.CAPTURES_SEC else {}
    loads_sec = kept_traces.LOADS_SEC
    all_sec = loads_sec + kept_traces.SAVES_SEC + parallel.WAITS_SEC
    ours = {KEPT: sum(all_sec), NUM_LOADED: float(len(loads_sec))} if all_sec else {}
    return {name: sum(values) for name, values in times.items()} | captures | counts | ours


def since(before: Mapping[str, float]) -> dict[str, float]:
    """Return the values of the event `compiled`: seconds by part, and the numbers of cache hits and misses."""
    new = {name: value - before.get(name, 0.0) for name, value in so_far().items()}
    hits, misses = (max(new.get(name, 0.0) for _, name in names) for names in (HITS, MISSES))
    hits += new.get(NUM_LOADED, 0.0)
    return parts(new) | {"num_cached": int(hits), "num_compiled": int(misses)}


def num_cached_graphs() -> int:
    """Return the number of graphs in Inductor's cache and among the kept traces, of all models."""
    with suppress(OSError, KeyError):
        folder = inductor_folder(os.environ)
        return sum(1 for pattern in ("fxgraph/*/*", f"{TRACES}/*.trace") for _ in folder.glob(pattern))
    return 0
