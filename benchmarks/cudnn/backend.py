"""cuDNN's DgradDreluBNBwdWeight by its C interface: the package `cudnn` has no function for its last operation.

The graph is cuDNN's sample: gradient of a convolution's input; batch normalisation of x again, which tells where its
ReLU was open; the ReLU's gradient dz; the gradients of scale and bias; and coefficients of dx = a dz + b x + c.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.cudnn.graphs import MOST_PLANS, channels_last

DESCRIPTORS = {
    "pointwise": 0, "convolution": 1, "engine config": 3, "heuristic": 4, "plan": 5, "dgrad": 12, "pointwise op": 13,
    "graph": 15, "variant pack": 16, "tensor": 17, "norm weights": 23,
}  # fmt: skip
HANDLE, DATA_TYPE, BOOLEAN, INT64, FLOAT, POINTER, CONVOLUTION_MODE, HEURISTIC, POINTWISE_MODE, DESCRIPTOR = (
    0, 1, 2, 3, 4, 6, 7, 8, 14, 15,
)  # fmt: skip
C_TYPES: dict[int, Any] = {BOOLEAN: ctypes.c_bool, INT64: ctypes.c_int64, FLOAT: ctypes.c_float}
C_TYPES |= dict.fromkeys((HANDLE, POINTER, DESCRIPTOR), ctypes.c_void_p)
KINDS = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 9}
ADD, MULTIPLY, SUBTRACT, RELU_BACKWARD = 0, 1, 9, 200
MODES = (3, 2)  # heuristic A, fallback


class Backend:
    """cuDNN's C functions."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcudnn.so.9")  # PyTorch's: it is loaded

    def check(self, status: int) -> None:
        if status:
            text = ctypes.create_string_buffer(512)
            self.library.cudnnGetLastErrorString(text, ctypes.c_size_t(len(text)))
            raise RuntimeError(f"cuDNN's status {status}: {text.value.decode(errors='replace')}")

    def empty(self, kind: str) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        self.check(self.library.cudnnBackendCreateDescriptor(DESCRIPTORS[kind], ctypes.byref(descriptor)))
        return descriptor

    def made(self, kind: str, *attributes: tuple[int, int, Sequence[Any]]) -> ctypes.c_void_p:
        """Make a descriptor with attributes, each a number, a type and values."""
        descriptor = self.empty(kind)
        for name, type_of, values in attributes:
            array = values_of(type_of, values)
            self.check(
                self.library.cudnnBackendSetAttribute(descriptor, name, type_of, ctypes.c_int64(len(values)), array)
            )
        self.check(self.library.cudnnBackendFinalize(descriptor))
        return descriptor

    def got(self, descriptor: ctypes.c_void_p, name: int, type_of: int, array: Any) -> int:
        """Read an attribute into an array; return how many values it has."""
        count = ctypes.c_int64()
        status = self.library.cudnnBackendGetAttribute(
            descriptor, name, type_of, ctypes.c_int64(len(array)), ctypes.byref(count), array
        )
        self.check(status)
        return count.value


def values_of(type_of: int, values: Sequence[Any]) -> Any:
    c_type = C_TYPES.get(type_of, ctypes.c_int)
    return (c_type * len(values))(*(value.value if isinstance(value, ctypes.c_void_p) else value for value in values))


class BackwardGraph:
    """`outputs`: dz, gradients of gamma and beta, and the coefficients a, b and c."""

    def __init__(self, handle: Any, operands: Any, backend: Backend | None = None) -> None:
        self.backend, self.handle = backend or Backend(), ctypes.c_void_p(int(handle or 0))
        self.buffers: dict[int, Tensor] = {}
        self.number = 0
        self.x, self.io = operands.x, operands.x.dtype
        channel = operands.gamma.shape
        x, dy, w = (self.tensor(tensor) for tensor in (operands.x, operands.dy, operands.w))
        mean, rstd, gamma, beta = (
            self.tensor(tensor.contiguous()) for tensor in (operands.mean, operands.rstd, operands.gamma, operands.beta)
        )
        self.outputs = [torch.empty_like(operands.x)]
        self.outputs += [torch.empty(channel, device=operands.x.device) for _ in range(5)]
        dz, *gradients = (self.tensor(tensor) for tensor in self.outputs)
        da = self.tensor(operands.x, self.io, virtual=True)
        self.operations = [self.dgrad(operands.layer, dy, w, da)]
        y = x
        for mode, other in ((SUBTRACT, mean), (MULTIPLY, rstd), (MULTIPLY, gamma), (ADD, beta)):
            before, y = y, self.tensor(operands.x, torch.float32, virtual=True)
            self.operations.append(self.pointwise(mode, (751, before), (752, other), (753, y)))
        self.operations.append(self.pointwise(RELU_BACKWARD, (751, y), (756, dz), (757, da)))
        ends = zip((1621, 1622, 1623, 1624, 1625, 1626, 1627, 1628, 1629, 1630),
                   (mean, rstd, gamma, x, dz, *gradients), strict=True)  # fmt: skip
        attributes = [(number, DESCRIPTOR, [tensor]) for number, tensor in ends]
        self.operations.append(self.backend.made("norm weights", (1620, DATA_TYPE, [0]), *attributes))

    def tensor(self, like: Tensor, dtype: torch.dtype | None = None, virtual: bool = False) -> ctypes.c_void_p:
        self.number += 1
        if not virtual:
            self.buffers[self.number] = like
        return self.backend.made(
            "tensor", (901, DATA_TYPE, [KINDS[dtype or like.dtype]]), (902, INT64, list(like.shape)),
            (903, INT64, channels_last(like.shape)), (906, INT64, [self.number]), (900, INT64, [16]),
            (907, BOOLEAN, [virtual]),
        )  # fmt: skip

    def pointwise(self, mode: int, *ends: tuple[int, ctypes.c_void_p]) -> ctypes.c_void_p:
        kind = self.backend.made("pointwise", (0, POINTWISE_MODE, [mode]), (1, DATA_TYPE, [0]))
        attributes = [(number, DESCRIPTOR, [tensor]) for number, tensor in ends]
        return self.backend.made("pointwise op", (750, DESCRIPTOR, [kind]), *attributes)

    def dgrad(self, layer: Any, dy: Any, w: Any, da: Any) -> ctypes.c_void_p:
        of = layer.convolution()
        kind = self.backend.made(
            "convolution", (100, DATA_TYPE, [0]), (101, CONVOLUTION_MODE, [1]), (106, INT64, [2]),
            (103, INT64, of["stride"]), (105, INT64, of["padding"]), (104, INT64, of["padding"]),
            (102, INT64, of["dilation"]),
        )  # fmt: skip
        ends = [(708, kind), (709, w), (710, da), (711, dy)]
        attributes = [(number, DESCRIPTOR, [tensor]) for number, tensor in ends]
        return self.backend.made("dgrad", *attributes, (706, FLOAT, [1.0]), (707, FLOAT, [0.0]))

    def configurations(self) -> list[ctypes.c_void_p]:
        graph = self.backend.made("graph", (800, HANDLE, [self.handle]), (801, DESCRIPTOR, self.operations))
        configurations: list[ctypes.c_void_p] = []
        for mode in MODES:
            heuristic = self.backend.made("heuristic", (201, DESCRIPTOR, [graph]), (200, HEURISTIC, [mode]))
            empty = [self.backend.empty("engine config") for _ in range(8)]
            count = self.backend.got(heuristic, 202, DESCRIPTOR, values_of(DESCRIPTOR, empty))
            configurations += empty[:count]
        return configurations

    def build(self, milliseconds: Callable[[Callable[[], object]], float]) -> None:
        """Choose the fastest of the plans that cuDNN ranks highest. Raises RuntimeError without a plan."""
        refusal = RuntimeError("cuDNN has no plan")
        ready: list[tuple[float, Any, Any, Tensor]] = []
        for configuration in self.configurations():
            try:
                plan = self.backend.made("plan", (400, HANDLE, [self.handle]), (401, DESCRIPTOR, [configuration]))
                size = values_of(INT64, [0])
                self.backend.got(plan, 402, INT64, size)
                workspace = torch.empty(max(1, size[0]), dtype=torch.uint8, device=self.x.device)
                self.plan, self.pack = plan, self.packed(workspace)
                ready.append((milliseconds(self), self.plan, self.pack, workspace))
            except RuntimeError as error:
                refusal = error
            if len(ready) == MOST_PLANS:
                break
        if not ready:
            raise refusal
        _, self.plan, self.pack, self.workspace = min(ready, key=lambda each: each[0])

    def packed(self, workspace: Tensor) -> ctypes.c_void_p:
        pointers = [tensor.data_ptr() for tensor in self.buffers.values()]
        return self.backend.made(
            "variant pack", (1001, POINTER, pointers), (1000, INT64, list(self.buffers)),
            (1003, POINTER, [workspace.data_ptr()]),
        )  # fmt: skip

    def __call__(self) -> None:
        self.backend.check(self.backend.library.cudnnBackendExecute(self.handle, self.plan, self.pack))
