"""Translators on a GPU: compiled steps give loss and gradients of plain ones, and the host never waits."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainers import synchronization
from tests.trainers.models import test_gnmt, test_transformer
from trainers.data.loading.types import Shard

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
MAKERS = {"transformer": test_transformer.module, "gnmt": test_gnmt.module}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_compiled_step_gives_what_a_plain_one_does_without_a_wait(name: str, precision: str) -> None:
    torch.manual_seed(0)
    translator: Any = MAKERS[name](width=64, dropout=0.0).cuda()
    translator._trainer = SimpleNamespace(precision_plugin=SimpleNamespace(scaler=None))
    loader = test_transformer.text(400).viewed(translator.view).train_loader(512, 1, Shard(0, 1, translator.device))
    batches = [dict(batch) for batch in loader][:3]
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    optimizer = translator.configure_optimizers()

    def step(batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss and norm of the gradients."""
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype, cache_enabled=False) if dtype else nullcontext():
            loss: torch.Tensor = translator.training_step(batch, 0)
        loss.backward()
        norm = nn.utils.get_total_norm([parameter.grad for parameter in translator.parameters()])
        if name != "transformer":  # It clips itself, and not by Lightning.
            translator.configure_gradient_clipping(optimizer, None, None)
        return loss.detach().clone(), norm

    plain = [step(batch) for batch in batches]
    translator.compile_hot_path()
    for _ in range(3):
        for batch in batches:
            step(batch)
    torch.cuda.synchronize()
    with synchronization.refused():
        compiled = [step(batch) for batch in batches]
        optimizer.step()
    torch.testing.assert_close(compiled, plain, rtol=2e-2 if dtype else 1e-3, atol=1e-3)
