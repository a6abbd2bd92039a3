"""SSD300's options: the rates that follow from them, pretrained weights, and values and files that are refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torchvision.models import resnet18, resnet34

from conf.schema import ConfigError
from tests.trainers.small_ssd import ssd
from trainers.models.ssd.network import BACKBONES, build_backbone

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_rate_follows_the_schedule() -> None:
    module = ssd(epochs=3, decay_epochs=[2], warmup_steps=1, learning_rate=0.1)
    optimizer = module.configure_optimizers()
    assert isinstance(optimizer, torch.optim.SGD)
    trainer: Any = SimpleNamespace(num_training_batches=2, current_epoch=0, optimizers=[optimizer])
    module.__dict__["_trainer"] = trainer
    rates = []
    for epoch in range(3):
        trainer.current_epoch = epoch
        for step in range(2):
            module.on_train_batch_start({}, step)
            rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.05, 0.1, 0.1, 0.1, 0.01, 0.01])
    assert module.max_epochs == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": "resnet50"}, r"backbone=resnet50: no such network. Allowed: resnet18, resnet34"),
        ({"width": 0}, r"width=0: "),
        ({"width": "half"}, r"width=half: "),
        ({"momentum": 1.0}, r"momentum=1\.0: "),
        ({"epochs": 0}, r"epochs=0: "),
        ({"warmup_steps": -1}, r"warmup_steps=-1: "),
        ({"decay_epochs": [2, 1]}, r"decay_epochs=\[2, 1\]: "),
        ({"pretrained": "weights.pth"}, r"pretrained=weights\.pth: .*width=1, not 0\.125"),
        ({"pretrained": "/nowhere/weights.pth", "width": 1}, r"pretrained=/nowhere/weights\.pth: cannot be read"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"model\.hparams\.{message}"):
        ssd(**options)


def test_pretrained_weights_are_torchvisions(tmp_path: Path) -> None:
    path = tmp_path / "resnet18.pth"
    state = {name: torch.full_like(tensor, 2) for name, tensor in resnet18().state_dict().items()}
    del state["bn1.num_batches_tracked"]  # Older files lack it.
    torch.save(state, path)
    module = ssd(pretrained=str(path), width=1)
    loaded = module.net.backbone.state_dict()
    assert all((tensor == 2).all() for name, tensor in loaded.items() if name != "bn1.num_batches_tracked")
    assert not any((parameter == 2).all() for parameter in module.net.heads.parameters())
    with torch.device("meta"):
        own = build_backbone(BACKBONES["resnet34"], 1.0).state_dict()
        theirs = resnet34().state_dict()
    assert {name: tensor.shape for name, tensor in own.items()}.items() <= {
        name: tensor.shape for name, tensor in theirs.items()
    }.items()


def test_files_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"

    def refused(message: str) -> None:
        with pytest.raises(ConfigError, match=rf"model\.hparams\.pretrained=.*weights\.pth: {message}"):
            ssd(pretrained=str(path), width=1)

    path.write_bytes(b"no weights")
    refused("cannot be read")
    own = build_backbone(BACKBONES["resnet18"], 1.0).state_dict()
    torch.save({name: tensor for name, tensor in own.items() if name != "layer3.1.conv2.weight"}, path)
    refused(r".*another network .*layer3\.1\.conv2\.weight; 1 in all")
    torch.save(own | {"conv1.weight": torch.zeros(64, 1, 7, 7)}, path)
    refused(r".*another network .*conv1\.weight; 1 in all")
