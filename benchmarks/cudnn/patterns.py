"""Patterns of fusions.py: what today's step runs, the graph in its place, and the results that both have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.cudnn import graphs, layers
from benchmarks.cudnn.backend import BackwardGraph
from benchmarks.cudnn.graphs import Graph
from benchmarks.cudnn.layers import CHANNEL, Layer, Operands

Make = Callable[[Any, Operands, torch.dtype], Any]

pass_statistics, pass_normalised, pass_norm, pass_backward, pass_sums, pass_applied, pass_combined = (
    layers.in_passes(function)
    for function in (
        layers.statistics, layers.normalised, layers.norm, layers.backward,
        layers.normalised_backward, layers.applied, layers.combined,
    )
)  # fmt: skip


class Pattern(NamedTuple):
    """A fusion. `unfused` runs today's passes, `graph` makes the fused graph, `rest` runs what the graph leaves out.

    `expected` gives the graph's results. `moved` gives the values that the unfused and the fused side read and write,
    from the numbers of values of input, output and weights.
    """

    name: str
    unfused: Callable[[Operands], Any]
    graph: Make | None
    expected: Callable[[Operands], tuple[Tensor, ...]]
    moved: Callable[[int, int, int], tuple[int, int]]
    rest: Callable[[Any, Operands], Any] = lambda graph, operands: None
    applies: Callable[[Layer], bool] = lambda layer: layer.normalises


def made(define: Callable[[Graph, Operands], None]) -> Make:
    """Return a function that makes a graph, which `define` fills."""

    def make(handle: Any, operands: Operands, within: torch.dtype) -> Graph:
        graph = Graph(handle, operands.x.dtype, within)
        define(graph, operands)
        return graph

    return make


def sums(y: Tensor) -> tuple[Tensor, ...]:
    return y, y.float().sum(CHANNEL, keepdim=True), y.float().square().sum(CHANNEL, keepdim=True)


def masked(o: Operands) -> tuple[Tensor, ...]:
    """Gradient of the ReLU's input, its sums, and those of its product with x."""
    dz = torch.where(o.a > 0, o.gradients(of_input=True), 0)
    return dz, dz.float().sum(CHANNEL, keepdim=True), (dz.float() * o.x.float()).sum(CHANNEL, keepdim=True)


def weights(o: Operands) -> tuple[Tensor, ...]:
    """Gradients of the ReLU's input, of gamma and of beta."""
    dz, total, product = masked(o)
    return dz, (product - o.mean * total) * o.rstd, total


def normalise_and_convolve(o: Operands) -> None:
    pass_statistics(o.convolved(pass_normalised(o.x, o.scale, o.bias)))


def backward(o: Operands) -> None:
    pass_backward(o.gradients(of_input=True), o.a, o.x, o.mean, o.rstd, o.gamma)


PATTERNS = (
    Pattern("convolution", lambda o: o.convolved(o.a), None, lambda o: (), lambda x, y, w: (x + y + w, 0),
            applies=lambda layer: True),
    Pattern("gradients", lambda o: (o.gradients(of_input=True), o.gradients(of_input=False)), None, lambda o: (),
            lambda x, y, w: (2 * (x + y + w), 0), applies=lambda layer: True),
    Pattern("statistics", lambda o: pass_statistics(o.convolved(o.a)), made(graphs.statistics),
            lambda o: sums(o.y), lambda x, y, w: (x + 2 * y + w, x + y + w), applies=lambda layer: True),
    Pattern("normalised", normalise_and_convolve, made(graphs.normalised),
            lambda o: sums(o.y), lambda x, y, w: (3 * x + 2 * y + w, x + y + w)),
    Pattern("wgrad", lambda o: o.gradients(of_input=False), made(graphs.wgrad),
            lambda o: (o.gradients(of_input=False),), lambda x, y, w: (x + y + w, x + y + w)),
    Pattern("dgrad sums", backward, made(lambda graph, o: graphs.dgrad(graph, o, sums=True)), masked,
            lambda x, y, w: (8 * x + y + w, 5 * x + y + w),
            lambda graph, o: pass_applied(*graph.outputs, o.x, o.mean, o.rstd, o.gamma)),
    Pattern("dgrad", backward, made(lambda graph, o: graphs.dgrad(graph, o, sums=False)), masked,
            lambda x, y, w: (8 * x + y + w, 7 * x + y + w),
            lambda graph, o: pass_sums(graph.outputs[0], o.x, o.mean, o.rstd, o.gamma)),
    Pattern("dgrad weights", backward, lambda handle, o, within: BackwardGraph(handle, o), weights,
            lambda x, y, w: (8 * x + y + w, 5 * x + y + w),
            lambda graph, o: pass_combined(graph.outputs[0], o.x, *graph.outputs[3:])),
    Pattern("norm", lambda o: pass_norm(o.x, None), made(lambda graph, o: graphs.norm(graph, o, add=False)),
            lambda o: (layers.norm(o.x, None),), lambda x, y, w: (3 * x, 3 * x)),
    Pattern("norm backward", lambda o: pass_backward(o.da, o.a, o.x, o.mean, o.rstd, o.gamma),
            made(graphs.norm_backward),
            lambda o: layers.backward(o.da, o.a, o.x, o.mean, o.rstd, o.gamma),
            lambda x, y, w: (7 * x, 5 * x)),
    Pattern("norm add", lambda o: pass_norm(o.y, o.dy), made(lambda graph, o: graphs.norm(graph, o, add=True)),
            lambda o: (layers.norm(o.y, o.dy),), lambda x, y, w: (4 * y, 4 * y),
            applies=lambda layer: layer.ends_block),
)  # fmt: skip
