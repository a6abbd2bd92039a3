"""A precision takes effect: seen in the dtype and the value of a matrix product, not in a flag."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
import yaml

from conf.schema import PrecisionConfig, from_dict
from trainers import precision

CONF = Path(__file__).resolve().parents[2] / "conf/precision"
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def config(name: str) -> PrecisionConfig:
    return from_dict(PrecisionConfig, yaml.safe_load((CONF / f"{name}.yaml").read_text()))


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    matmul, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = cudnn


def observed(name: str, device: str) -> str:
    chosen = config(name)
    precision.apply(chosen)
    accelerator = "gpu" if device == "cuda" else "cpu"
    trainer = pl.Trainer(accelerator=accelerator, devices=1, precision=chosen.trainer, barebones=True)  # type: ignore[arg-type]
    precision.check(trainer, chosen, torch.device(device))
    with trainer.precision_plugin.train_step_context():
        return precision.observe(torch.device(device))


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_on_a_cpu(name: str) -> None:
    assert observed(name, "cpu") == name


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", ["fp32", "tf32", "bf16", "fp16"])
def test_on_a_gpu(name: str) -> None:
    assert observed(name, "cuda") == name


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("name", "kept"), [("fp32", True), ("tf32", False)])
def test_convolutions_too(name: str, kept: bool) -> None:
    precision.apply(config(name))
    value = 1 + 2.0**-12  # needs 12 bits of mantissa; tf32 has 10
    images = torch.full((8, 64, 16, 16), value, device="cuda")
    weight = torch.zeros(64, 64, 3, 3, device="cuda")
    weight[:, 0, 1, 1] = 1.0
    result = torch.nn.functional.conv2d(images, weight, padding=1)
    assert bool((result == value).all()) == kept


def test_a_precision_that_did_not_take_effect_is_noticed() -> None:
    trainer = pl.Trainer(accelerator="cpu", devices=1, barebones=True)
    with pytest.raises(AssertionError, match=r"precision=bf16 was asked for.*run in fp32"):
        precision.check(trainer, config("bf16"), torch.device("cpu"))
