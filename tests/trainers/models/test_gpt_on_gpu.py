"""The language model on a GPU: compiled steps give loss and gradients of plain ones, and the host never waits."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainers import synchronization
from tests.trainers.models.test_gpt import language, model, spread
from trainers.data.loading.types import Shard

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_compiled_step_gives_what_a_plain_one_does_without_a_wait(precision: str) -> None:
    data = language(sequence_length=64)
    module = model(data, width=256, heads=2, micro_batch_size=512)
    spread(module)
    module.cuda()
    plugin: Any = SimpleNamespace(precision_plugin=SimpleNamespace(scaler=None))
    module._trainer = plugin
    loader = data.train_loader(2048, 1, Shard(0, 1, module.device))
    batches = [dict(batch) for batch, _ in zip(loader, range(3), strict=False)]
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    optimizer = module.configure_optimizers()
    weights = [parameter.detach().clone() for parameter in module.parameters()]

    def step(batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss and norm of the gradients, always from the same weights."""
        with torch.no_grad():
            torch._foreach_copy_(list(module.parameters()), weights)
        with torch.autocast("cuda", dtype) if dtype else nullcontext():
            loss = module.training_step(batch, 0)
        loss.backward()
        norm = nn.utils.get_total_norm([parameter.grad for parameter in module.parameters()])
        optimizer.step()
        return loss.detach().clone(), norm

    plain = [step(batch) for batch in batches]
    module.compile_hot_path()
    for batch in batches:
        step(batch)
    torch.cuda.synchronize()
    with synchronization.refused():
        compiled = [step(batch) for batch in batches]
    tolerance = 1e-4 if precision == "fp32" else 3e-2
    torch.testing.assert_close(compiled, plain, rtol=tolerance, atol=tolerance)
