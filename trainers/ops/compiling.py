"""Compiles hot paths, with CUDA graphs on GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import nn


def compiled(
    function: Callable[..., Any],
    device: torch.device,
    autotune: bool = False,
    cuda_graphs: bool = True,
    keep: bool = True,
) -> Callable[..., Any]:
    """Compile a function for the shapes of its first call; on a GPU its kernels become one CUDA graph.

    Launching the kernels one by one would take the host, which also feeds the decoder, longer than they run. With
    `autotune` the compiler measures variants of its own kernels. This starts more slowly, and is some per cent faster
    if those kernels, not matrix products, take most of the time.

    With `keep`, a function of this project may keep its trace for later processes.

    Results are valid until the next step. PyTorch considers each call of a compiled function the start of a step, even
    in another thread: functions that prepare batches must not be compiled.
    """
    on_gpu = device.type == "cuda"
    uses = on_gpu and (cuda_graphs or autotune)
    options = {"triton.cudagraphs": cuda_graphs, "max_autotune_pointwise": autotune} if uses else None
    if keeper is not None and keep and is_ours(function):
        return keeper(function, options or {})
    return torch.compile(function, dynamic=False, options=options)  # type: ignore[arg-type]


def is_ours(function: Callable[..., Any]) -> bool:
    """Return whether it is a function of this project without a state of its own.

    PyTorch drops guards on globals and functions from a kept trace. So the trace of a user's function, which may depend
    on a setting, would be used although that has changed.
    """
    project = __name__.removesuffix(".ops.compiling")
    return (
        isinstance(function, FunctionType)
        and not function.__closure__
        and function.__module__.startswith(f"{project}.")
        and function.__name__ == function.__qualname__
        and function.__name__ != "<lambda>"
    )


# Makes a function compiled that keeps its traces, from the function and the options; None: each process traces anew.
keeper: Callable[[Callable[..., Any], dict[str, Any]], Callable[..., Any]] | None = None
CAPTURES_SEC: list[float] = []  # duration of each capture in this process, of StepGraphs and of whole steps


class StepGraphs:
    """Computes the loss of a step by two CUDA graphs, of its forward and its backward pass, for each shape of tensors.

    It suits steps of few shapes whose kernels take less time than their launches, and functions that the compiler
    cannot compile as one graph. A pair is captured when its shape first occurs, which the warm-up ensures, and has its
    own gradients. All pairs share the other memory: a loss and its gradients are valid until the next step. Autocast
    must not cache its casts.
    """

    def __init__(self, network: nn.Module, loss: Callable[..., torch.Tensor]) -> None:
        """`loss` takes the network and the step's tensors, and returns a scalar."""
        self._network, self._loss = network, loss
        self._pool = torch.cuda.graph_pool_handle()
        accept_gradients_of_graphs()
        self._graphed: dict[tuple[torch.Size, ...], Any] = {}

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the loss. All tensors are on one GPU and need no gradient."""
        shapes = tuple(tensor.shape for tensor in tensors)
        if shapes not in self._graphed:
            inputs = tuple(tensor.clone() for tensor in tensors)  # Each step copies its tensors into these.
            whole = _Whole(self._network, self._loss)
            began = time.monotonic()
            self._graphed[shapes] = torch.cuda.make_graphed_callables(whole, inputs, pool=self._pool)
            CAPTURES_SEC.append(time.monotonic() - began)
        loss: torch.Tensor = self._graphed[shapes](*tensors)
        return loss


class _Whole(nn.Module):
    """A network and its loss as one module: PyTorch's graphs compute gradients only of a module's parameters."""

    def __init__(self, network: nn.Module, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.network, self._loss = network, loss

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self._loss(self.network, *tensors)


def accept_gradients_of_graphs() -> None:
    """Graphs are captured on another stream, and the nodes that accumulate gradients stay on it: do not warn."""
    warn = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
    if warn is not None:  # since PyTorch 2.10
        warn(False)


def raise_recompile_limit(graphs: int) -> None:
    """Let the compiler make this many graphs of a function before it gives up."""
    config = torch._dynamo.config
    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # the second name before 2.7
    setattr(config, name, graphs)
