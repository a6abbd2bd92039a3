"""How hot paths are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def compiled(function: Callable[..., Any], device: torch.device, autotune: bool = False) -> Callable[..., Any]:
    """Compiled for the shapes it is first called with; on a GPU its kernels become one CUDA graph.

    Launched one by one, they would keep the host, which also feeds the decoder, busier than the device. With `autotune`
    the compiler measures variants of its own kernels: slower to start, and some per cent faster where those kernels,
    rather than matrix products, take the time.

    Results live until the next step. PyTorch takes the call of any compiled function for the start of one, also in
    another thread: what prepares batches must not be compiled.
    """
    if device.type != "cuda":
        return torch.compile(function, dynamic=False)
    return torch.compile(
        function, dynamic=False, options={"triton.cudagraphs": True, "max_autotune_pointwise": autotune}
    )


def raise_recompile_limit(graphs: int) -> None:
    """Let the compiler make this many graphs of one function before it gives up on it."""
    config = torch._dynamo.config
    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # the second before 2.7
    setattr(config, name, graphs)
