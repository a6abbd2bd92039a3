"""Attention by spans gives what a mask of all pairs gives, and drops what it should."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from tests.trainers import triton_on_cpu
from tests.trainers.ops.test_roi_align import needs_triton
from tests.trainers.triton_on_cpu import Attended, attended
from trainers.ops.attention import spans

gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
KINDS = ("own", "earlier", "other")


class Seen(NamedTuple):
    out: torch.Tensor
    gradients: list[torch.Tensor]


def expected(given: Attended) -> Seen:
    """In float64, by a mask of all pairs."""
    parts = [tensor.double().requires_grad_() for tensor in (given.parts, given.source) if tensor is not None]
    keys = parts[-1][:, -2:]
    row_of = [torch.arange(sentences.numel()) // sentences.shape[1] for sentences in (given.queries, given.keys)]
    queries, others = given.queries.flatten(), given.keys.flatten()
    mask = (queries[:, None] == others) & (row_of[0][:, None] == row_of[1]) & (queries > 0)[:, None]
    mask = mask.tril() if given.causal else mask
    scores = torch.einsum("qhd,khd->hqk", parts[0][:, 0], keys[:, 0]) / keys.shape[3] ** 0.5
    shares = scores.masked_fill(~mask, -1e30).softmax(dim=2) * mask
    out = torch.einsum("hqk,khd->qhd", shares, keys[:, 1])
    gradients = torch.autograd.grad(out, parts, given.upstream.double())
    return Seen(out.detach(), list(gradients))


def assert_same(seen: Seen, other: Seen, tolerance: float) -> None:
    for own, wanted in zip((seen.out, *seen.gradients), (other.out, *other.gradients), strict=True):
        torch.testing.assert_close(own.double().cpu(), wanted, rtol=tolerance, atol=tolerance)


def test_a_token_s_keys_are_its_sentence_in_its_row() -> None:
    own, other = torch.tensor([[1, 1, 2, 0], [1, 3, 0, 0]]), torch.tensor([[1, 2, 2, 2], [1, 2, 3, 3]])
    where = spans(own, other)
    assert [list(range(*span)) for span in zip(where.key_first, where.key_last, strict=True)] == [
        [0], [0], [1, 2, 3], [], [4], [6, 7], [], [],
    ]  # fmt: skip
    assert [list(range(*span)) for span in zip(where.query_first, where.query_last, strict=True)] == [
        [0, 1], [2], [2], [2], [4], [], [5], [5],
    ]  # fmt: skip
    causal = spans(own, own, causal=True)
    assert [list(range(*span)) for span in zip(causal.key_first, causal.key_last, strict=True)] == [
        [0], [0, 1], [2], [], [4], [5], [], [],
    ]  # fmt: skip
    assert [list(range(*span)) for span in zip(causal.query_first, causal.query_last, strict=True)] == [
        [0, 1], [1], [2], [], [4], [5], [], [],
    ]  # fmt: skip


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("kind", KINDS)
def test_the_kernels_give_the_same_in_triton_s_interpreter(kind: str) -> None:
    tensors = triton_on_cpu.results()
    gradients = [tensors[f"attention_{kind}_gradient{number}"] for number in range(2 if kind == "other" else 1)]
    assert_same(Seen(tensors[f"attention_{kind}"], gradients), expected(attended(kind)), 1e-5)


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("name", ["out", "gradient"])
def test_rows_of_a_large_batch_are_found(name: str) -> None:
    """The last ones lie more than 2**31 numbers behind the first."""
    tensors = triton_on_cpu.results()
    assert tensors[f"near_{name}"].abs().max() > 0.1
    torch.testing.assert_close(tensors[f"far_{name}"], tensors[f"near_{name}"], rtol=0, atol=0)


@pytest.mark.slow
@needs_triton
def test_what_is_dropped_is_dropped_in_the_gradient() -> None:
    """The loss is linear in the values, so that their gradient gives it back."""
    tensors = triton_on_cpu.results()
    out, values, gradient = (tensors[f"dropped_{name}"] for name in ("out", "values", "gradient"))
    assert out.sum().item() == pytest.approx((values * gradient).sum().item(), rel=1e-4)
    assert out.mean().item() == pytest.approx(1, abs=0.05)
    assert out.std().item() == pytest.approx((0.3 / 0.7 / 48) ** 0.5, rel=0.3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        pytest.param(torch.float32, 1e-4, marks=gpu),
        pytest.param(torch.bfloat16, 3e-2, marks=gpu),
        pytest.param(torch.float16, 4e-3, marks=gpu),
    ],
    ids=str,
)
def test_on_a_gpu_it_is_the_same(kind: str, dtype: torch.dtype, tolerance: float) -> None:
    given = attended(kind)
    rounded = given._replace(
        parts=given.parts.to(dtype), source=None if given.source is None else given.source.to(dtype),
        upstream=given.upstream.to(dtype),
    )  # fmt: skip
    out, gradients = triton_on_cpu.attend_to(rounded, torch.device("cuda"))
    assert_same(Seen(out, gradients), expected(rounded), tolerance)
