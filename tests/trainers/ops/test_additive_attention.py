"""Additive attention's scores and gradients are those of its formula, computed in float64."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from tests.trainers import triton_on_cpu
from tests.trainers.triton_on_cpu import Scored, scored
from trainers.ops.additive_attention import additive_scores

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def by_formula(given: Scored) -> list[torch.Tensor]:
    """Scores and the gradients of query, key, vector and bias, float64, a pair of a query and a key at a time."""
    query, key, vector, bias = inputs = [part.double().requires_grad_() for part in given[:4]]
    rows = [
        torch.stack([torch.stack([vector @ torch.tanh(q + k + bias) for k in key[:, row]]) for q in query[:, row]])
        for row in range(query.shape[1])
    ]
    scores = torch.stack(rows)
    scores.backward(given.gradient.double())
    return [scores.detach(), *(part.grad for part in inputs if part.grad is not None)]


def ours(given: Scored, device: str, dtype: torch.dtype) -> list[torch.Tensor]:
    types = (dtype, dtype, torch.float32, torch.float32)
    inputs = [part.to(device, kind, copy=True).requires_grad_() for part, kind in zip(given[:4], types, strict=True)]
    scores = additive_scores(*inputs)
    scores.backward(given.gradient.to(device))
    gradients = [part.grad for part in inputs if part.grad is not None]
    assert [gradient.dtype for gradient in gradients] == list(types)
    return [scores.detach(), *gradients]


def assert_close(tensors: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float) -> None:
    """Within a share of the greatest value there is."""
    for tensor, other in zip(tensors, expected, strict=True):
        torch.testing.assert_close(tensor.double().cpu(), other, rtol=0, atol=tolerance * float(other.abs().max()))


def test_it_is_the_formula() -> None:
    assert_close(ours(scored(), "cpu", torch.float32), by_formula(scored()), 1e-6)


@pytest.mark.slow
@needs_triton
def test_the_kernels_give_the_same_in_triton_s_interpreter() -> None:
    tensors = triton_on_cpu.results()
    names = ["scores", *(f"scores_{name}" for name in Scored._fields[:4])]
    assert_close([tensors[name] for name in names], by_formula(scored()), 1e-6)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-6), (torch.float16, 4e-3), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("sizes", [(5, 19, 3, 70), (33, 16, 9, 1024), (1, 50, 2, 256), (50, 7, 17, 64)])
def test_the_kernels_give_the_same_on_a_gpu(
    dtype: torch.dtype, tolerance: float, sizes: tuple[int, int, int, int]
) -> None:
    given = scored(*sizes)
    rounded = given._replace(query=given.query.to(dtype), key=given.key.to(dtype))
    tensors = ours(rounded, "cuda", dtype)
    assert_close(tensors, by_formula(rounded), tolerance)
    assert all(torch.equal(*pair) for pair in zip(tensors, ours(rounded, "cuda", dtype), strict=True))


@pytest.mark.gpu
@needs_gpu
def test_the_compiler_takes_it_as_one_operator_for_all_shapes() -> None:
    moved = [part.cuda().requires_grad_() for part in scored()[:4]]
    torch.library.opcheck(torch.ops.timetrial.additive_scores.default, tuple(moved))
    compiled = torch.compile(lambda *parts: additive_scores(*parts).softmax(dim=2), dynamic=True, fullgraph=True)
    compiled(*(part.cuda().requires_grad_() for part in scored(6, 11, 4)[:4])).sum().backward()
    with torch._dynamo.config.patch(error_on_recompile=True):
        for sizes in ((6, 11, 4), (9, 21, 5)):
            parts = [part.cuda().requires_grad_() for part in scored(*sizes)[:4]]
            seen = compiled(*parts)
            torch.testing.assert_close(seen, additive_scores(*parts).softmax(dim=2))
            (seen * seen).sum().backward()
            assert parts[0].grad is not None
            assert parts[0].grad.any()
