"""How the processes of a run exchange their gradients."""

from __future__ import annotations

import inspect
import os
from typing import Any

import torch
from pytorch_lightning.strategies import DDPStrategy
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ONE_BUCKET_MB = 1 << 20  # more than any model's gradients take


def overlaps(asked: bool | None, topology: str) -> bool:
    """Whether gradients are exchanged during the backward pass, on GPUs of this class (see tracking.topology).

    The exchange takes multiprocessors from the pass, and the compiler has to cut the pass in pieces to let gradients
    out early. Over NVLink, where NCCL may use it, it is so short that both cost more than they hide.
    """
    direct = os.environ.get("NCCL_P2P_DISABLE", "0") == "0" and os.environ.get("NCCL_P2P_LEVEL") not in ("LOC", "0")
    return not (topology.startswith("NV") and direct) if asked is None else asked


def options(overlap: bool) -> dict[str, Any]:
    """Arguments of DistributedDataParallel; also sets how the compiler treats what it wraps, for this process."""
    torch._dynamo.config.optimize_ddp = overlap
    # Buffers are made the same before an evaluation rather than at every step; gradients need no second copy.
    known = inspect.signature(DistributedDataParallel).parameters  # PyTorch 2.15 has a new name for it
    every_step = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    plain = {every_step: False, "gradient_as_bucket_view": True}
    return plain if overlap else plain | {"bucket_cap_mb": ONE_BUCKET_MB}


class OnOneStream(DDPStrategy):
    """Lightning would make DDP on another CUDA stream than the one that trains, for graphs of whole steps.

    There are none here, and PyTorch warns that gradients may have to be synchronised between the two.
    """

    def _setup_model(self, model: nn.Module) -> DistributedDataParallel:
        return DistributedDataParallel(model, **self._ddp_kwargs)
