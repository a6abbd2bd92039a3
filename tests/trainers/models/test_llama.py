"""Llama's network against a plain one, head by head, and its size and FLOPs."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.support.composing import composed
from tests.trainers.models.test_gpt import batch_of, language, model, spread
from trainers.models.gpt.layers import Sizes
from trainers.models.gpt.network import GPT, flops_per_token

HEADS, KV_HEADS = 4, 2
LLAMA = {
    "architecture": "llama", "heads": HEADS, "kv_heads": KV_HEADS, "cap": None, "attention_scale": None, "hidden": 3.5,
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("one_thread")


def normed(x: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * gains


def turned(x: torch.Tensor) -> torch.Tensor:
    """As complex numbers of a head's first half and second half, which turn forwards."""
    half = x.shape[-1] // 2
    rates = torch.tensor([500_000 ** -(number / half) for number in range(half)])
    angles = torch.arange(x.shape[-2])[:, None] * rates
    pairs = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((pairs.real, pairs.imag), dim=-1)


def plain_layer(x: torch.Tensor, own: dict[str, nn.Parameter]) -> torch.Tensor:
    """[length, width]"""
    length, width = x.shape
    before, size, seen = normed(x, own["norm1"]), width // HEADS, []
    for head in range(HEADS):
        shared = head // (HEADS // KV_HEADS)
        query = turned(before @ own["query"][head * size : (head + 1) * size].t())
        key, value = (before @ part[shared * size : (shared + 1) * size].t() for part in own["pairs"])
        scores = query @ turned(key).t() / math.sqrt(size)
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        seen.append(scores.masked_fill(hidden, -math.inf).softmax(dim=1) @ value)
    x = x + torch.cat(seen, dim=1) @ own["out"].t()
    before = normed(x, own["norm2"])
    gate, up = own["widen"]
    return x + (F.silu(before @ gate.t()) * (before @ up.t())) @ own["narrow"].t()


def test_loss_and_gradients_are_those_of_a_plain_one_whether_layers_are_computed_again_or_not() -> None:
    data = language()
    module = model(data, **LLAMA)
    spread(module)
    batch, net = batch_of(data, 32), module.net
    total = torch.zeros(())
    for inputs, targets in zip(batch["inputs"], batch["targets"], strict=True):
        x = net.embedding[inputs]
        for own in net.layers:
            x = plain_layer(x, dict(own.named_parameters()))
        total += F.cross_entropy(normed(x, net.last_norm) @ net.head.t(), targets, reduction="sum")
    (total / 32).backward()
    expected = [parameter.grad for parameter in module.parameters()]
    for again in (False, True):
        net.activation_checkpointing = again
        loss = module.training_step(batch, 0)
        loss.backward()
        torch.testing.assert_close(loss, total / 32, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(
            [parameter.grad for parameter in module.parameters()], expected, rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize(("recipe", "billions"), [("llama_1b", 1.498), ("llama_8b", 8.030), ("llama_70b", 70.55)])
def test_its_sizes_are_llama_3s(recipe: str, billions: float) -> None:
    """The 1B has its head in common with the embedding, which is here a matrix of its own."""
    options = composed(["model=llama", f"recipe={recipe}"]).model.hparams
    sizes = Sizes(**{name: options[name] for name in ("layers", "width", "heads", "vocabulary", "hidden", "kv_heads")})
    with torch.device("meta"):
        net = GPT(sizes, 16, None, None, architecture="llama")
    assert sum(parameter.numel() for parameter in net.parameters()) == pytest.approx(billions * 1e9, rel=0.001)


def test_flops_are_six_a_weight_and_those_of_attention() -> None:
    """8B at 8,192: torchtitan counts the same."""
    sizes = Sizes(32, 4096, 32, 128256, 3.5, 8)
    matrices = 8_030_261_248 - 128256 * 4096 - (2 * 32 + 1) * 4096  # without the embedding and the norms
    assert flops_per_token(sizes, 8192, "llama") == 6 * matrices + 12 * 32 * 4096 * 8192
