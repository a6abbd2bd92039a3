"""Puts a precision into effect, and observes that it is."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytorch_lightning as pl
import torch
from torch.nn import functional

from conf.schema import PrecisionConfig


def apply(config: PrecisionConfig) -> None:
    """Set how matrix units treat fp32 inputs, for this process, and whose compiled steps it may take over.

    Autocast is the trainer's part.
    """
    # PyTorch lets cuDNN round convolutions to tf32 by default, so fp32 has to be asked for as well.
    torch.set_float32_matmul_precision("high" if config.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = config.tf32
    # PyTorch 2.11's cache of compiled steps does not tell fp16's from bf16's: it would run the other one's.
    torch.compiler.config.cache_key_tag = config.name
    # The compiler's processes keep under this name which variant of a kernel was measured as fastest. Without it they
    # would measure anew at every start.
    os.environ["TORCH_COMPILE_CACHE_KEY_TAG"] = config.name


def observe(device: torch.device, multiply: Callable[..., torch.Tensor] = functional.linear) -> str:
    """The precision that matrix products run in under the surrounding context: fp32, tf32, bf16, fp16 or fp8.

    1 + 2^-12 needs 12 bits of mantissa: fp32 keeps it, tf32 with its 10 bits rounds it to 1. 1 - 2^-5 needs 5, and
    beside 1 fp8 rounds it to that.
    """
    values = torch.full((64, 64), 1 + 2.0**-12, device=device)
    product = values @ torch.eye(64, device=device)
    if product.dtype is torch.bfloat16:
        coarse = torch.full((64, 64), 1 - 2.0**-5, device=device, dtype=torch.bfloat16)
        coarse[0, 0] = 1
        rounded = multiply(coarse, torch.eye(64, device=device, dtype=torch.bfloat16))
        return "fp8" if bool((rounded == 1).all()) else "bf16"
    if product.dtype is torch.float16:
        return "fp16"
    return "fp32" if torch.equal(product, values) else "tf32"


def check_steps(trainer: pl.Trainer, config: PrecisionConfig, device: torch.device) -> None:
    """Raise AssertionError where the trainer's steps would not run in the precision that was asked for."""
    with trainer.precision_plugin.train_step_context():
        observed = observe(device, getattr(trainer.lightning_module, "multiply", functional.linear))
    assert observed == config.name, f"precision={config.name} was asked for, but matrix products run in {observed}"


def start_momentum(trainer: pl.Trainer) -> None:
    """Give a fused SGD a momentum of zero, where a loss scaler may skip its first step.

    PyTorch 2.11 makes the buffers at the first step, uninitialized, and leaves them so where a gradient overflowed: the
    next step then takes for momentum what the memory held. Zeros are what a first step that counts begins with.
    """
    if getattr(trainer.precision_plugin, "scaler", None) is None:
        return
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups if isinstance(optimizer, torch.optim.SGD) else []:
            if group["fused"] and group["momentum"]:
                for parameter in group["params"]:
                    optimizer.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
