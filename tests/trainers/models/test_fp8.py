"""Linear layers in fp8: what rounding does to them, by arithmetic, and to a training's loss."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from conf.schema import ConfigError
from tests.trainers.models.test_gpt import language, model
from tests.trainers.processes import ALONE
from trainers.loop import precision
from trainers.models.gpt import LanguageModel, fp8

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")


@pytest.mark.parametrize(("dtype", "bits"), [(fp8.VALUES, 3), (fp8.GRADIENTS, 2)])
def test_numbers_lose_half_a_last_bit_at_most_by_a_scale_that_bfloat16_holds(dtype: torch.dtype, bits: int) -> None:
    x = torch.tensor([1000.0, -3.0, 1.0, 0.7, 100.0, -999.0])
    narrow, turned, back = fp8.narrowed(x[None], dtype)
    kept = narrow[0].float() * back
    assert torch.equal(turned.float(), narrow.float().t())
    assert turned.is_contiguous()
    assert float(back) == float(back.bfloat16())
    assert torch.finfo(dtype).max / 2 < 1000 / float(back) <= torch.finfo(dtype).max
    assert ((kept - x).abs() <= x.abs() * 2.0 ** -(bits + 1)).all()
    zeros, _, back = fp8.narrowed(torch.zeros(1, 4), dtype)
    assert (zeros.float() * back == 0).all()


def given(device: torch.device = CPU) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    x, weight, bias, gradient = (
        torch.randn(shape, generator=generator) for shape in ((2, 32, 64), (48, 64), (48,), (2, 32, 48))
    )
    return tuple(tensor.to(device).bfloat16() for tensor in (x, weight, bias, gradient))


def both(device: torch.device = CPU) -> list[list[torch.Tensor]]:
    """Result and gradients in fp8, and in bf16."""
    results = []
    for linear in (fp8.linear, F.linear):
        *inputs, gradient = given(device)
        for tensor in inputs:
            tensor.requires_grad_()
        result = linear(*inputs)
        result.backward(gradient)
        results.append([result.detach(), *(tensor.grad for tensor in inputs)])  # type: ignore[misc]
    return results


def test_a_layer_and_its_gradients_are_near_those_of_bf16_and_not_the_same() -> None:
    ours, others = both()
    for own, other, most in zip(ours, others, (0.06, 0.09, 0.09, 1e-6), strict=True):
        far = float((own.float() - other.float()).norm() / other.float().norm())
        assert far <= most
        assert most < 1e-3 or far > 0.01  # 3 bits and 2 of mantissa


def test_fp8_is_observed_as_such() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert precision.observe(CPU, fp8.linear) == "fp8"
        assert precision.observe(CPU) == "bf16"
    assert precision.observe(CPU, fp8.linear) == "fp32"


def losses(narrow: bool, steps: int, device: torch.device) -> torch.Tensor:
    data = language(train_tokens=64 * 512 * 8, sequence_length=32)
    module = model(data, width=64, micro_batch_size=512, epsilon=1e-8, steps=steps).to(device)
    if narrow:
        module.use_fp8()
    optimizer, seen = module.configure_optimizers(), []
    for batch, _ in zip(data.train_loader(512, 1, ALONE), range(steps), strict=False):
        moved = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
        with torch.autocast(device.type, torch.bfloat16):
            loss = module.training_step(moved, 0)
        loss.backward()
        optimizer.step()
        seen.append(loss.detach().cpu())
    return torch.stack(seen)


def test_micro_batches_share_the_casts_of_their_step_and_nothing_else_changes() -> None:
    data = language(train_tokens=64 * 512 * 8, sequence_length=32)
    results, module = list[list[torch.Tensor]](), model(data, width=64, micro_batch_size=128)
    module.use_fp8()
    batch, calls, kept = next(iter(data.train_loader(512, 1, ALONE))), list[int](), fp8.kept
    for cast in (None, lambda matrices: calls.append(len(matrices)) or kept(matrices)):
        module.net.cast = cast
        module.drop_compiled()
        with torch.autocast("cpu", torch.bfloat16):
            loss = module.training_step(batch, 0)
        loss.backward()
        results.append([loss.detach(), *(parameter.grad for parameter in module.parameters())])  # type: ignore[misc]
    assert calls == [4] * len(module.net.layers)
    assert all(torch.equal(own, other) for own, other in zip(*results, strict=True))
    assert all(block.casts is None for block in module.net.layers)


def near(steps: int, device: torch.device) -> None:
    """Both learn, and the last tenths of the losses differ by 2 % of what was learnt at most."""
    ours, others = (losses(narrow, steps, device) for narrow in (True, False))
    learnt = others[0] - others[-steps // 10 :].mean()
    assert learnt > 0.3
    assert not torch.equal(ours, others)
    assert abs(float(ours[-steps // 10 :].mean() - others[-steps // 10 :].mean())) < 0.02 * learnt


@pytest.mark.slow
def test_a_training_s_first_losses_are_those_of_bf16_emulated() -> None:
    near(40, CPU)


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9), reason="needs a GPU with fp8"
)
def test_on_a_gpu_products_are_the_emulated_ones_and_200_losses_are_those_of_bf16() -> None:
    device = torch.device("cuda")
    for own, emulated in zip(both(device)[0], both()[0], strict=True):
        torch.testing.assert_close(own.cpu(), emulated, rtol=0.02, atol=0.05)
    near(200, device)


def test_a_model_without_such_layers_and_a_width_that_matrix_units_do_not_take_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.hparams\.width=8: precision=fp8 needs a multiple of 16"):
        model(width=8, heads=1).use_fp8()
    narrow = model()
    narrow.use_fp8()
    assert isinstance(narrow, LanguageModel)
    assert narrow.multiply is fp8.linear
