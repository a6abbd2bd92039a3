"""Measures matrix products in each precision, and copies within memory."""

from __future__ import annotations

from typing import Any

import torch

from trainers.ceilings.repeated_rate import Counters, rate

SIZE = {"cuda": 8192, "cpu": 1024}
COPY_BYTES = {"cuda": 2**30, "cpu": 2**27}  # larger than any cache
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def matrix_product(precision: str, device: torch.device, counters: Counters | None) -> dict[str, Any]:
    """Return the FLOP/s of a square product, at 2 n^3 operations. Raises RuntimeError if the device cannot do it."""
    size = SIZE[device.type]
    a, b = (torch.randn(size, size, device=device).to(DTYPES[precision]) for _ in range(2))
    out = torch.empty_like(a)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        return rate(lambda: torch.mm(a, b, out=out), 2.0 * size**3, "FLOP/s", device, counters)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def precisions(device: torch.device) -> list[str]:
    """Return the precisions of DTYPES for which the device has matrix units."""
    if device.type == "cpu":
        return ["fp32"]
    names = ["fp32", "fp16"]
    if torch.cuda.get_device_capability(device) >= (8, 0):
        names += ["tf32", "bf16"]
    return names


def copy(device: torch.device, counters: Counters | None) -> dict[str, Any]:
    """Return the bytes/s of a copy within the device's memory, reads and writes together."""
    source = torch.zeros(COPY_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return rate(lambda: target.copy_(source), 2.0 * source.nbytes, "B/s", device, counters)
