"""Compiles hot paths, with CUDA graphs on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch


def compiled(
    function: Callable[..., Any],
    device: torch.device,
    autotune: bool = False,
    cuda_graphs: bool = True,
    keep: bool = True,
) -> Callable[..., Any]:
    """Compile a function for the shapes of its first call; on a GPU its kernels become one CUDA graph.

    Launching kernels one by one would take longer than they run, since the host also feeds the decoder. With
    `autotune` the compiler measures variants of its own kernels. The start is slower; steps are some per cent faster
    if those kernels, not matrix products, take most of the time.

    With `keep`, a function of this project may keep its trace for later processes.

    Results are valid until the next step. For PyTorch each call of a compiled function starts a step, even in another
    thread. So functions that prepare batches must not be compiled.
    """
    on_gpu = device.type == "cuda"
    uses = on_gpu and (cuda_graphs or autotune)
    options = {"triton.cudagraphs": cuda_graphs, "max_autotune_pointwise": autotune} if uses else None
    if keeper is not None and keep and is_ours(function):
        return keeper(function, options or {})
    return torch.compile(function, dynamic=False, options=options)  # type: ignore[arg-type]


def is_ours(function: Callable[..., Any]) -> bool:
    """Return whether the function is this project's and stateless: a top-level function without a closure.

    A kept trace has no guards on globals and functions. A user's function may depend on them; its trace would still be
    used after they changed.
    """
    project = __name__.removesuffix(".ops.compiling")
    return (
        isinstance(function, FunctionType)
        and not function.__closure__
        and function.__module__.startswith(f"{project}.")
        and function.__name__ == function.__qualname__
        and function.__name__ != "<lambda>"
    )


# Compiles a function with these options and keeps its traces for later processes; None: each process traces anew.
keeper: Callable[[Callable[..., Any], dict[str, Any]], Callable[..., Any]] | None = None
CAPTURES_SEC: list[float] = []  # duration of each capture of a step in this process


def accept_gradients_of_graphs() -> None:
    """Suppress a warning: gradients of CUDA graphs accumulate on the stream of the capture, as intended."""
    warn = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
    if warn is not None:  # since PyTorch 2.10
        warn(False)


def raise_recompile_limit(graphs: int) -> None:
    """Let the compiler make this many graphs of a function before it gives up."""
    config = torch._dynamo.config
    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # the second name before 2.7
    setattr(config, name, graphs)
