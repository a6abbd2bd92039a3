"""Sets the precision of a process, and checks by computing that it is in effect."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytorch_lightning as pl
import torch
from torch.nn import functional

from conf.schema import PrecisionConfig


def apply(config: PrecisionConfig) -> None:
    """Set for this process how matrix units treat fp32 inputs, and which cached compiled steps it may use.

    The Trainer sets autocast.
    """
    # By default PyTorch lets cuDNN round convolutions to tf32, so fp32 has to be set, too.
    torch.set_float32_matmul_precision("high" if config.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = config.tf32
    # PyTorch 2.11's cache of compiled steps does not distinguish fp16 from bf16: it would run the wrong one.
    torch.compiler.config.cache_key_tag = config.name
    # The compiler's processes store the fastest variant of each kernel under this name. Without it they would measure
    # again at every start.
    os.environ["TORCH_COMPILE_CACHE_KEY_TAG"] = config.name


def observe(device: torch.device, multiply: Callable[..., torch.Tensor] = functional.linear) -> str:
    """Return the precision of matrix products in the surrounding context: fp32, tf32, bf16, fp16 or fp8.

    1 + 2^-12 needs 12 bits of mantissa: fp32 keeps it, and tf32, which has 10, rounds it to 1. 1 - 2^-5 needs 5 bits:
    fp8, scaled by a largest value of 1, rounds it to 1.
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
    """Raise AssertionError if the trainer's steps would not run in the run's precision."""
    with trainer.precision_plugin.train_step_context():
        observed = observe(device, getattr(trainer.lightning_module, "multiply", functional.linear))
    assert observed == config.name, f"precision={config.name}: matrix products run in {observed} instead"


def start_momentum(trainer: pl.Trainer) -> None:
    """Give fused SGD a momentum of zero, if a loss scaler may skip its first step.

    PyTorch 2.11 makes the momentum buffers at the first step, uninitialized, and leaves them so if a gradient
    overflows. The next step then takes arbitrary memory for momentum. A first step without overflow begins with zeros.
    """
    if getattr(trainer.precision_plugin, "scaler", None) is None:
        return
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups if isinstance(optimizer, torch.optim.SGD) else []:
            if group["fused"] and group["momentum"]:
                for parameter in group["params"]:
                    optimizer.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
