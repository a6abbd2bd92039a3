"""How the processes of a run exchange their gradients."""

from __future__ import annotations

from typing import Any

import torch

ONE_BUCKET_MB = 1 << 20  # more than any model's gradients take


def overlaps(asked: bool | None, topology: str) -> bool:
    """Whether gradients are exchanged during the backward pass, on GPUs of this class (see tracking.topology).

    The exchange takes multiprocessors from the pass, and the compiler has to cut the pass in pieces to let gradients
    out early. Over NVLink it is so short that both cost more than they hide.
    """
    return not topology.startswith("NV") if asked is None else asked


def options(overlap: bool) -> dict[str, Any]:
    """Arguments of DistributedDataParallel; also sets how the compiler treats what it wraps, for this process."""
    torch._dynamo.config.optimize_ddp = overlap
    # Buffers are broadcast before an evaluation rather than at every step; gradients need no second copy.
    plain = {"broadcast_buffers": False, "gradient_as_bucket_view": True}
    return plain if overlap else plain | {"bucket_cap_mb": ONE_BUCKET_MB}
