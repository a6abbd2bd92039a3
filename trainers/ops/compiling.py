"""How hot paths are compiled."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


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


CAPTURES_SEC: list[float] = []  # what each capture of StepGraphs took in this process


class StepGraphs:
    """The loss of a step by CUDA graphs of its forward and its backward pass, a pair for each shape of its tensors.

    For steps of few shapes whose kernels are shorter than their launches, and for what the compiler cannot take whole.
    A pair is made when its shape first comes, which a warm-up is for, and keeps gradients of its own. All share the
    other memory: a loss and its gradients live until the next step. Autocast must not keep what it casts.
    """

    def __init__(self, network: nn.Module, loss: Callable[..., torch.Tensor]) -> None:
        """`loss` takes the network and the step's tensors, and gives a scalar."""
        self._network, self._loss = network, loss
        self._pool = torch.cuda.graph_pool_handle()
        # Graphs are recorded on a stream of their own, where the nodes that keep the gradients then stay.
        warn = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
        if warn is not None:  # PyTorch 2.10 has it.
            warn(False)
        self._graphed: dict[tuple[torch.Size, ...], Any] = {}

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        """The loss. All tensors are on one GPU, and need no gradient."""
        shapes = tuple(tensor.shape for tensor in tensors)
        if shapes not in self._graphed:
            own = tuple(tensor.clone() for tensor in tensors)  # Each step's are copied into these.
            whole = _Whole(self._network, self._loss)
            began = time.monotonic()
            self._graphed[shapes] = torch.cuda.make_graphed_callables(whole, own, pool=self._pool)
            CAPTURES_SEC.append(time.monotonic() - began)
        loss: torch.Tensor = self._graphed[shapes](*tensors)
        return loss


class _Whole(nn.Module):
    """A network with what is done with it, since PyTorch makes gradients of a module's parameters alone."""

    def __init__(self, network: nn.Module, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.network, self._loss = network, loss

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self._loss(self.network, *tensors)


def raise_recompile_limit(graphs: int) -> None:
    """Let the compiler make this many graphs of one function before it gives up on it."""
    config = torch._dynamo.config
    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # the second before 2.7
    setattr(config, name, graphs)
