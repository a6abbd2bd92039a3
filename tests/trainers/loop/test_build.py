"""A language model is made on the run's device, so that both strategies draw the weights of large ones there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.composing import composed
from trainers.loop.build import build
from trainers.models import gpt, vgg
from trainers.models.gpt.layers import draw
from trainers.workload import Shard

META = torch.device("meta")


@pytest.mark.parametrize(
    ("workload", "options", "device"),
    [(gpt.WORKLOAD, ["model=gpt", "recipe=gpt_cpu"], "meta"), (vgg.WORKLOAD, ["model=vgg", "dataset=digits"], "cpu")],
)
def test_a_language_model_is_made_on_the_runs_device(workload: Any, options: list[str], device: str) -> None:
    module, _ = build(workload, composed([*options, "gpus=0"]), Shard(0, 1, META), None)
    assert {tensor.device.type for tensor in module.state_dict().values()} == {device}


def test_small_models_have_the_same_weights_on_all_devices() -> None:
    drawn: list[torch.Tensor] = []
    on_gpu: Any = SimpleNamespace(
        device=SimpleNamespace(type="cuda"), is_meta=False, shape=torch.Size([2, 3]), copy_=drawn.append
    )
    on_cpu = torch.empty(2, 3)
    torch.manual_seed(1)
    draw(on_cpu, 0.5, on_device=False)
    torch.manual_seed(1)
    with META:  # PyTorch's default device
        draw(on_gpu, 0.5, on_device=False)
    assert torch.equal(drawn[0], on_cpu)
