"""NeuMF's kernels against its plain layers: in Triton's interpreter without a GPU, and on a GPU as a step runs them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.trainers import synchronization, triton_on_cpu
from tests.trainers.neumf import Sampled, sampled, with_large_sums
from tests.trainers.processes import ALONE
from trainers.data.loading.types import Shard
from trainers.data.ratings import ratings
from trainers.models.ncf import fused
from trainers.models.ncf.module import Ncf, fused_training_loss, training_loss
from trainers.models.ncf.network import NeuMF

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
PUBLISHED = {"factors": 64, "layers": [256, 256, 128, 64]}


def gradients_of(given: Sampled, loss_of: Any, kind: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """By the parameters' names, those of a loss thrice as large, and the loss; under autocast to a half type."""
    net, *batch = given
    net.zero_grad()
    with torch.autocast(batch[0].device.type, kind, enabled=kind != torch.float32):
        loss = loss_of(net, *batch)
    (3 * loss).backward()
    return {"loss": loss.detach(), **{name: each.grad.clone() for name, each in net.named_parameters()}}


@pytest.mark.slow
def test_the_kernels_give_the_loss_and_the_gradients_of_plain_layers() -> None:
    """Groups that fill no block, users and items that come often, fillers without weight, a loss that is scaled."""
    expected = gradients_of(sampled(), training_loss)
    by_kernels = triton_on_cpu.results("tests.trainers.neumf")
    for name, each in expected.items():
        torch.testing.assert_close(by_kernels[name], each, rtol=1e-4, atol=1e-5 * float(each.abs().max()))


@pytest.mark.slow
def test_the_loss_of_weights_that_are_no_numbers_is_none() -> None:
    assert triton_on_cpu.results("tests.trainers.neumf")["broken"].isnan().all()


@pytest.mark.slow
def test_a_sum_over_samples_may_be_more_than_fp16_holds() -> None:
    expected = gradients_of(with_large_sums(), training_loss)["others.1.weight"] / 3
    by_kernels = triton_on_cpu.results("tests.trainers.neumf")["large"]
    assert float((by_kernels - expected).norm() / expected.norm()) < 0.01


@pytest.mark.parametrize(
    ("factors", "layers", "holds"),
    [
        (64, [256, 256, 128, 64], True),
        (16, [24, 64, 32, 32], True),
        (8, [16, 12, 6], False),
        (64, [256, 512, 128, 64], False),
        (64, [256, 256, 96, 64], False),
        (64, [256, 256, 128], False),
        (128, [256, 256, 128, 64], False),
    ],
)
def test_other_sizes_are_left_to_plain_layers(
    factors: int, layers: list[int], holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Properties:
        shared_memory_per_block_optin = 232_448

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties)
    with torch.device("meta"):
        net = NeuMF(5, 9, factors, layers)
    assert fused.has_kernels(net, torch.device("cuda", 0)) is holds
    assert not fused.has_kernels(net, torch.device("cpu"))
    Properties.shared_memory_per_block_optin = 101_376  # a GPU whose processors have less memory
    assert not fused.has_kernels(net, torch.device("cuda", 0))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("kind", "error"), [(torch.bfloat16, 0.02), (torch.float16, 0.01)])
def test_on_a_gpu_they_round_no_more_than_plain_layers(kind: torch.dtype, error: float) -> None:
    given = sampled(num_groups=5_000, num_users=300, num_items=200, device="cuda", **PUBLISHED)
    exact = gradients_of(given, training_loss)
    plain, by_kernels = gradients_of(given, training_loss, kind), gradients_of(given, fused_training_loss, kind)
    for name, each in exact.items():
        size = each.norm()
        away, plain_s = float((by_kernels[name] - each).norm() / size), float((plain[name] - each).norm() / size)
        assert away <= max(1.5 * plain_s, 1e-5), (name, away, plain_s)
        assert away < error, (name, away)
    assert any(not torch.equal(by_kernels[name], plain[name]) for name in exact)  # The kernels ran.


@pytest.mark.gpu
@needs_gpu
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_a_compiled_step_with_kernels_never_waits_and_computes_the_same(kind: torch.dtype) -> None:
    device = torch.device("cuda", 0)
    data = ratings(20_000)
    torch.manual_seed(1)
    module = Ncf(data, 0.01, weight_decay=0.0, epochs=3, **PUBLISHED)
    with torch.no_grad():
        expected = float(module.training_step(next(iter(data.train_loader(5000, 1, ALONE))), 0))
    module.to(device).compile_hot_path()
    optimizer = module.configure_optimizers()

    def step(batch: dict[str, Any]) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cuda", kind):
            loss = module.training_step(batch, 0)
        loss.backward()
        return loss.detach().clone()

    loader = iter(data.train_loader(5000, 1, Shard(0, 1, device)))
    first = step(next(loader))
    for _ in range(2):
        step(next(loader))
    with synchronization.refused():
        step(next(loader))
        optimizer.step()
    assert float(first) == pytest.approx(expected, rel=1e-3)
