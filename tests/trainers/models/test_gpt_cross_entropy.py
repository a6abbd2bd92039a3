"""The chunked loss and its gradients against PyTorch's of all logits at once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from trainers.models.gpt import cross_entropy
from trainers.models.gpt.cross_entropy import CrossEntropy

ROWS, WIDTH, TOKENS, CAP = 37, 8, 11, 15.0


def given(dtype: torch.dtype = torch.float32) -> tuple[list[torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((ROWS, WIDTH), (TOKENS, WIDTH), (TOKENS,))
    tensors = [3 * torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    targets = torch.randint(0, TOKENS, (ROWS,), generator=generator)
    targets[[3, 20]] = -100
    return [tensor.requires_grad_() for tensor in tensors], targets


def plain(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logits = F.linear(inputs, weight, bias)
    return F.cross_entropy(CAP * logits / (logits**2 + CAP**2).sqrt(), targets, reduction="sum")


@pytest.mark.parametrize("elements", [10**9, 7 * TOKENS, TOKENS, 1])
def test_loss_and_gradients_are_those_of_all_logits_at_once(monkeypatch: pytest.MonkeyPatch, elements: int) -> None:
    monkeypatch.setattr(cross_entropy, "CHUNK_ELEMENTS", elements)
    tensors, targets = given()
    loss = CrossEntropy(CAP)(*tensors, targets)
    (0.5 * loss).backward()
    others, _ = given()
    expected = plain(*others, targets)
    (0.5 * expected).backward()
    torch.testing.assert_close(loss, expected)
    for own, other in zip(tensors, others, strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(CrossEntropy(CAP)(*tensors, targets), expected)


def test_logits_far_beyond_the_cap_give_finite_numbers() -> None:
    tensors, targets = given()
    loss = CrossEntropy(cross_entropy.LARGEST_CAP)(tensors[0] * 1e6, *tensors[1:], targets)
    loss.backward()
    assert loss.isfinite()
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in tensors)


def test_in_a_half_type_no_float32_tensor_is_as_large_as_all_logits() -> None:
    """The largest float32 tensor is that of a chunk, whose size is limited."""
    tensors, targets = given()
    loss = CrossEntropy(CAP)(tensors[0].bfloat16(), *tensors[1:], targets)
    loss.backward()
    assert loss.dtype == torch.float32
    others, _ = given()
    expected = plain(others[0].bfloat16().float(), *others[1:], targets)
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=0.02)


def test_chunks_are_of_one_size_and_have_every_row_once() -> None:
    rows = torch.arange(100)[:, None].float()
    pieces = cross_entropy._chunks(rows, rows[:, 0].long(), cross_entropy.CHUNK_ELEMENTS // 30)
    assert [len(piece) for piece, _ in pieces] == [25] * 4
    assert torch.cat([piece for piece, _ in pieces]).equal(rows)


def test_without_cap_and_bias_it_is_pytorchs() -> None:
    (inputs, weight, _), targets = given()
    loss = CrossEntropy(None)(inputs, weight, None, targets)
    loss.backward()
    (other, other_weight, _), _ = given()
    expected = F.cross_entropy(other @ other_weight.t(), targets, reduction="sum")
    expected.backward()
    torch.testing.assert_close((loss, inputs.grad, weight.grad), (expected, other.grad, other_weight.grad))
    with torch.no_grad():
        torch.testing.assert_close(CrossEntropy(None)(inputs, weight, None, targets), expected)
