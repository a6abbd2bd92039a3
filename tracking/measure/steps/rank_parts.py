"""What each rank's time in a window went to, as its event says it; and where each rank computes."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from tracking.measure.steps.host_watch import NAMES
from tracking.record import node_records

LATE = 0.1  # A rank's loader is late in a step if it waits for its batch for this share of the step or more.
# DDP exchanges within the backward pass. Where ranks wait there for less of their time, and it is not known that DDP
# exchanges, the exchange comes after it.
IN_BACKWARD = 0.01
PLACES = "rank_places"  # the event that says where ranks compute


def of_window(
    times: torch.Tensor,
    waits: torch.Tensor,
    within: torch.Tensor,
    held: torch.Tensor,
    samples: torch.Tensor,
    is_ddp: bool = False,
) -> dict[str, list[float]]:
    """By field of the event, a value a rank: milliseconds, and of `rank_late` the number of steps.

    `times` and `waits` are seconds of (ranks, steps). `within` are those of (ranks, 3, steps) from a step's last
    gradient to the end of its backward pass, from there to the optimizer, and from there to its end. `held` is
    (ranks, 4), as `HostWatch.seconds` orders them. What is 0 on every rank is left out, and so are samples where all
    have as many.
    """
    backward, after, updates = within.sum(dim=2).unbind(dim=1)
    fields = {f"rank_{name}_ms": 1e3 * held[:, place] for place, name in enumerate(NAMES)}
    fields["rank_late"] = (waits >= LATE * times).sum(dim=1)
    fields["rank_update_ms"] = 1e3 * updates
    if len(times) > 1:
        waited = is_ddp or bool(backward.sum() >= IN_BACKWARD * times.sum())
        fields["rank_exchange_ms"] = 1e3 * (backward if waited else backward + after)
        fields["rank_samples"] = samples * (samples.min() != samples.max())
    return {key: [round(value, 4) for value in row.tolist()] for key, row in fields.items() if bool(row.any())}


def is_ddp(trainer: Any) -> bool:
    """Whether PyTorch's DDP exchanges the gradients of a Lightning trainer."""
    return isinstance(getattr(trainer.strategy, "model", None), DistributedDataParallel)


def place(device: torch.device) -> dict[str, Any]:
    """The node of this process, and the UUID of its GPU where it has one."""
    if device.type != "cuda":
        return {"node": node_records.name()}
    return {"node": node_records.name(), "gpu": str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))}
