"""Graphs of cuDNN that fuse a convolution with batch normalisation, ReLU and statistics.

The package nvidia-cudnn-frontend (imported as `cudnn`) opens cuDNN's graph API. Layouts are channels last. cuDNN's
guide lists the patterns: ConvBNfprop (`normalised`, `statistics`), ConvBNwgrad (`wgrad`), NormAddRelu (`norm`) and
DReluForkDNorm (`norm_backward`). The package has no function for DgradDreluBNBwdWeight's statistics, so `dgrad` asks
cuDNN for sums in their place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

try:
    import cudnn
except ModuleNotFoundError:  # The script says so.
    cudnn = None

REFUSALS: tuple[type[Exception], ...] = (
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
)
if cudnn is not None:
    REFUSALS = (*REFUSALS, cudnn.cudnnGraphNotSupportedError)
MOST_PLANS = 10  # number of cuDNN's highest-ranked plans to time
BUILD_SEC = 2.0  # build no further plan after this time if one is ready: some plans are compiled
MOST_WORKSPACE = 8 << 30  # bytes


def installed() -> bool:
    return cudnn is not None


def opened() -> tuple[Any, dict[str, Any]]:
    """Return a handle of cuDNN on PyTorch's stream, and the versions of cuDNN and of the package."""
    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
    return handle, {"cudnn": cudnn.backend_version(), "frontend": cudnn.__version__}


class Graph:
    """A graph with the tensors that it reads and writes; call it to run it."""

    def __init__(self, handle: Any, io: torch.dtype, intermediate: torch.dtype) -> None:
        kinds = {
            torch.bfloat16: cudnn.data_type.BFLOAT16, torch.float16: cudnn.data_type.HALF,
            torch.float32: cudnn.data_type.FLOAT,
        }  # fmt: skip
        self.io, self.handle = io, handle
        self.graph = cudnn.pygraph(
            io_data_type=kinds[io], intermediate_data_type=kinds[intermediate], compute_data_type=kinds[torch.float32],
            handle=handle,
        )  # fmt: skip
        self.buffers: dict[Any, Tensor] = {}
        self.outputs: list[Tensor] = []
        self.plan, self.workspace = 0, torch.empty(0, dtype=torch.uint8)

    def given(self, tensor: Tensor) -> Any:
        if tensor.device.type == "cpu" and tensor.numel() == 1:
            node = self.graph.tensor_like(tensor)  # passed by value
        else:
            node = self.graph.tensor(dim=list(tensor.shape), stride=channels_last(tensor.shape), data_type=tensor.dtype)
        self.buffers[node] = tensor
        return node

    def written(self, node: Any, shape: tuple[int, ...], device: torch.device, dtype: torch.dtype | None = None) -> Any:
        """Make a node an output of the graph."""
        tensor = torch.empty(shape, dtype=dtype or self.io, device=device, memory_format=torch.channels_last)
        node.set_output(True)
        node.set_dim(list(shape))
        node.set_stride(channels_last(shape))
        node.set_data_type(tensor.dtype)
        self.buffers[node] = tensor
        self.outputs.append(tensor)
        return node

    def define(self) -> None:
        self.graph.validate()
        self.graph.build_operation_graph()
        self.graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        self.graph.check_support()

    def build(self, milliseconds: Callable[[Callable[[], object]], float]) -> None:
        """Choose the fastest of the plans that cuDNN ranks highest. Raises one of REFUSALS without a plan."""
        self.define()
        refusal: Exception = RuntimeError("cuDNN has no plan")
        ready: list[tuple[float, int, Tensor]] = []
        began = time.monotonic()
        for plan in range(self.graph.get_execution_plan_count()):
            try:
                self.graph.build_plan_at_index(plan)
                size = self.graph.get_workspace_size_plan_at_index(plan)
                if size > MOST_WORKSPACE:
                    continue
                self.plan, self.workspace = plan, torch.empty(max(1, size), dtype=torch.uint8, device="cuda")
                ready.append((milliseconds(self), plan, self.workspace))
            except REFUSALS as error:
                refusal = error
            if len(ready) == MOST_PLANS or (ready and time.monotonic() - began > BUILD_SEC):
                break
        if not ready:
            raise refusal
        _, self.plan, self.workspace = min(ready, key=lambda each: each[0])

    def __call__(self) -> None:
        self.graph.execute_plan_at_index(self.buffers, self.workspace, self.plan, self.handle)


def channels_last(shape: Any) -> list[int]:
    """Strides of a packed [n, c, height, width]."""
    _, channels, height, width = shape
    return [channels * height * width, 1, channels * width, channels]


def convolved(graph: Graph, image: Any, operands: Any) -> None:
    """Convolve a node; write the output, the sums of its channels and the sums of their squares."""
    of = operands.layer.convolution()
    y = graph.graph.conv_fprop(image=image, weight=graph.given(operands.w), **of)
    graph.written(y, operands.y.shape, operands.y.device)
    for node in graph.graph.genstats(input=y):
        graph.written(node, (1, operands.y.shape[1], 1, 1), operands.y.device, torch.float32)


def affine(graph: Graph, x: Any, operands: Any, io: torch.dtype) -> Any:
    """Batch normalisation of a node as one scale and one bias for each channel."""
    scaled = graph.graph.scale(input=x, scale=graph.given(operands.scale.to(io)))
    return graph.graph.bias(input=scaled, bias=graph.given(operands.bias.to(io)))


def statistics(graph: Graph, operands: Any) -> None:
    convolved(graph, graph.given(operands.a), operands)


def normalised(graph: Graph, operands: Any) -> None:
    image = graph.graph.relu(input=affine(graph, graph.given(operands.x), operands, graph.io))
    convolved(graph, image, operands)


def wgrad(graph: Graph, operands: Any) -> None:
    image = graph.graph.relu(input=affine(graph, graph.given(operands.x), operands, graph.io))
    of = operands.layer.convolution()
    dw = graph.graph.conv_wgrad(image=image, loss=graph.given(operands.dy), **of)
    graph.written(dw, operands.w.shape, operands.w.device)


def dgrad(graph: Graph, operands: Any, sums: bool) -> None:
    """Gradient of a ReLU's input; with `sums`, also its sum and that of its product with x, for each channel."""
    shape, device = operands.x.shape, operands.x.device
    of = operands.layer.convolution()
    da = graph.graph.conv_dgrad(loss=graph.given(operands.dy), filter=graph.given(operands.w), **of)
    da.set_dim(list(shape))
    da.set_stride(channels_last(shape))
    x = graph.given(operands.x)
    dz = graph.graph.relu_backward(loss=da, input=affine(graph, x, operands, torch.float32))
    graph.written(dz, shape, device)
    if sums:
        for node in (dz, graph.graph.mul(dz, x)):
            total = graph.graph.reduction(input=node, mode=cudnn.reduction_mode.ADD)
            graph.written(total, (1, shape[1], 1, 1), device, torch.float32)


def norm(graph: Graph, operands: Any, add: bool) -> None:
    """Batch normalisation with its statistics, then ReLU; with `add`, of a block's output plus its shortcut."""
    x = operands.y if add else operands.x
    state = (1, x.shape[1], 1, 1)
    channel = [torch.ones(state, device=x.device) for _ in range(4)]
    scale, bias, mean, variance = (graph.given(tensor) for tensor in channel)
    channel[1].zero_()
    momentum, epsilon = (graph.given(torch.full((1, 1, 1, 1), value)) for value in (0.1, operands.EPSILON))
    out, *states = graph.graph.batchnorm(
        input=graph.given(x), scale=scale, bias=bias, in_running_mean=mean, in_running_var=variance, epsilon=epsilon,
        momentum=momentum,
    )  # fmt: skip
    if add:
        out = graph.graph.add(out, graph.given(operands.dy))
    graph.written(graph.graph.relu(input=out), x.shape, x.device)
    for node in states:
        graph.written(node, state, x.device, torch.float32)


def norm_backward(graph: Graph, operands: Any) -> None:
    x, mean, rstd = (graph.given(tensor) for tensor in (operands.x, operands.mean, operands.rstd))
    gamma, beta = graph.given(operands.gamma), graph.given(operands.beta)
    y = graph.graph.batchnorm_inference(input=x, mean=mean, inv_variance=rstd, scale=gamma, bias=beta)
    dz = graph.graph.relu_backward(loss=graph.given(operands.da), input=y)
    dz.set_data_type(graph.io)
    nodes = graph.graph.batchnorm_backward(grad=dz, input=x, scale=gamma, mean=mean, inv_variance=rstd)
    graph.written(nodes[0], operands.x.shape, operands.x.device)
    for node in nodes[1:]:
        graph.written(node, operands.gamma.shape, operands.x.device, torch.float32)
