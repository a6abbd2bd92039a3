"""The weights of the best evaluation are held on the host; tests/launch/test_trained_model.py trains for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from conf.schema import RunConfig
from trainers.loop.trained_model import BestWeights
from trainers.workload import TrialModule

NEEDS_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]


def network(device: str) -> TrialModule:
    module = TrialModule()
    module.net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
    return module.to(device, memory_format=torch.channels_last)


def evaluate(best: BestWeights, module: TrialModule, epoch: int, accuracy: float) -> None:
    """Evaluate weights that are all the epoch's number, and change them afterwards."""
    for value in module.state_dict().values():
        value.fill_(epoch)
    progress = SimpleNamespace(current=SimpleNamespace(ready=10))
    trainer: Any = SimpleNamespace(
        current_epoch=epoch - 1,
        global_step=10 * epoch,
        num_training_batches=10,
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=progress)),
    )
    best.evaluated(trainer, module, {"accuracy": accuracy})
    for value in module.state_dict().values():
        value.fill_(-1)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
def test_the_best_is_held_also_over_an_interruption(device: str) -> None:
    config = RunConfig()
    config.model.metrics = {"accuracy": [0.0, 1.0, "higher"]}
    first, module = BestWeights(config, holds=True), network(device)
    first.make_room(module)
    assert first.state_dict()["weights"] == {}, "nothing is evaluated yet"
    for epoch, accuracy in ((1, 0.2), (2, 0.6), (3, 0.4), (4, 0.6)):
        evaluate(first, module, epoch, accuracy)
    assert first.evaluation == {"epoch_num": 2, "step": 20, "metrics": {"accuracy": 0.6}}
    assert first.weights.keys() == module.state_dict().keys()
    assert all(value.device.type == "cpu" and (value == 2).all() for value in first.weights.values())

    second = BestWeights(config, holds=True)
    second.load_state_dict(first.state_dict())
    second.make_room(module)
    evaluate(second, module, 5, 0.5)
    assert all((value == 2).all() for value in second.weights.values())
    evaluate(second, module, 6, 0.7)
    assert all((value == 6).all() for value in second.weights.values())
    assert all(value.is_pinned() == (device == "cuda") for value in second.weights.values())
    other = BestWeights(config, holds=False)
    evaluate(other, module, 1, 1.0)
    assert other.weights == {}


@pytest.mark.parametrize(
    ("declared", "epoch"), [([0.0, 1.0, "higher"], 2), ([0.0, 1.0, "lower"], 3), ("lower", 3), ([0.0, 1.0], None)]
)
def test_without_a_target_the_best_is_in_the_declared_direction(declared: Any, epoch: int | None) -> None:
    config = RunConfig()
    config.model.metrics = {"accuracy": declared}
    best, module = BestWeights(config, holds=True), network("cpu")
    best.make_room(module)
    for number, accuracy in ((1, 0.4), (2, 0.6), (3, 0.2)):
        evaluate(best, module, number, accuracy)
    assert best.evaluation.get("epoch_num") == epoch
