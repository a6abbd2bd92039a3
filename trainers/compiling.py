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
    """
    if device.type != "cuda":
        return torch.compile(function, dynamic=False)
    graph = torch.compile(
        function, dynamic=False, options={"triton.cudagraphs": True, "max_autotune_pointwise": autotune}
    )

    def step(*arguments: Any) -> Any:
        # Results of a graph live until the next step. PyTorch takes the call of any compiled function for one, also in
        # another thread, such as the one that cuts images: unless it is told.
        torch.compiler.cudagraph_mark_step_begin()
        return graph(*arguments)

    return step
