"""What the benchmark of cuDNN's fusions compares: layers, references and totals; cuDNN itself needs a GPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from benchmarks.cudnn import layers
from benchmarks.cudnn.backend import Backend, BackwardGraph
from benchmarks.cudnn.layers import CHANNEL, Layer, Operands
from benchmarks.cudnn.report import COLUMNS, Row, step_gain, total

SMALL = Layer(8, 16, 3, 2, 1, 9, True, False)


def test_layers_are_all_convolutions_of_the_network() -> None:
    counts = layers.layers()
    assert sum(counts.values()) == 53
    assert sum(count for layer, count in counts.items() if layer.normalises) == 32
    assert sum(count for layer, count in counts.items() if layer.ends_block) == 16
    flop = sum(count * layer.flop(1) for layer, count in counts.items() if layer.kernel != 4)
    assert flop == pytest.approx(2 * (4.089e9 - 118e6 - 2e6), rel=0.001)  # without the first one and the classifier


def test_references_are_the_gradients_of_batch_normalisation_and_relu() -> None:
    operands = Operands(SMALL, 4, torch.float32, "cpu")
    x = operands.x.clone().requires_grad_()
    gamma, beta = (value.flatten().requires_grad_() for value in (operands.gamma, operands.beta))
    a = F.relu(F.batch_norm(x, None, None, gamma, beta, training=True, eps=Operands.EPSILON))
    torch.testing.assert_close(operands.a, a)
    y = operands.convolved(a)
    y.backward(operands.dy)
    da = operands.gradients(of_input=True)
    results = layers.backward(da, operands.a, operands.x, operands.mean, operands.rstd, operands.gamma)
    for result, expected in zip(results, (x.grad, gamma.grad, beta.grad), strict=True):
        assert expected is not None
        torch.testing.assert_close(result.view_as(expected), expected, rtol=1e-3, atol=1e-4)
    variance, mean = layers.statistics(y)
    torch.testing.assert_close(mean, y.mean(CHANNEL))
    torch.testing.assert_close(variance, y.var(CHANNEL, correction=0))


def row(pattern: str, unfused: float, fused: float | None, kind: str = "bf16") -> Row:
    times = [] if fused is None else [fused] * 3
    return Row("a", 2, pattern, (6, 3), 10, True, [unfused] * 3, times, kind, None if fused is None else 0.001)


def test_a_step_takes_each_layers_best_fusions() -> None:
    statistics = row("statistics", 5, 4)
    assert step_gain([statistics], ("bf16",)) == pytest.approx(2)
    assert step_gain([statistics], ("fp16",)) == 0
    assert step_gain([statistics, row("normalised", 9, 5)], ("bf16",)) == pytest.approx(2)  # it needs a fused wgrad
    whole = [statistics, row("normalised", 9, 5), row("wgrad", 3, 4), row("dgrad", 8, 7), row("dgrad sums", 8, None)]
    assert step_gain(whole, ("bf16",)) == pytest.approx(2 * (4 - 1 + 1))
    assert step_gain([row("wgrad", 3, 4), row("dgrad", 8, 9)], ("bf16",)) == 0


def test_a_refused_graph_is_a_row_and_no_time() -> None:
    refused = row("dgrad", 8, None)
    assert refused.gain() is None
    assert len(refused.cells()) == len(COLUMNS)
    assert "| 2 | 0 | 2 |" in total([refused])
    assert refused.line().count("|") == row("dgrad", 8, 7).line().count("|")


def test_cudnn_accepts_each_operation_of_the_backward_graph() -> None:
    """Descriptors need no GPU; a graph of them does."""
    try:
        backend = Backend()
    except OSError:
        pytest.skip("no libcudnn.so.9 is loaded")
    graph = BackwardGraph(None, Operands(SMALL, 4, torch.float16, "cpu"), backend)
    assert len(graph.operations) == 7
    assert len(graph.buffers) == 13  # x, dy, w, four of a channel, dz, two gradients, three coefficients
    with pytest.raises(RuntimeError, match="handle"):
        graph.configurations()
