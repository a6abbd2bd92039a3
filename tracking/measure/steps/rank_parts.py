"""Each rank's time in a window by part, as fields of the window's event; and the place of each rank."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from tracking.measure.steps.host_watch import NAMES
from tracking.record import node_records

LATE_SHARE = 0.1  # a rank's loader is late if the rank waits for its batch for this share of the step or more
# DDP exchanges gradients within the backward pass. Without DDP, a wait there below this share of the time means that
# the exchange comes after the backward pass.
MIN_BACKWARD_SHARE = 0.01
PLACES = "rank_places"  # the event with the places of the ranks


def of_window(
    times: torch.Tensor,
    waits: torch.Tensor,
    within: torch.Tensor,
    held: torch.Tensor,
    samples: torch.Tensor,
    is_ddp: bool = False,
) -> dict[str, list[float]]:
    """The event's fields, each with a value per rank: milliseconds, or for `rank_late` the number of steps.

    `times` and `waits` are seconds, shape (ranks, steps). `within` has shape (ranks, 3, steps): seconds from a step's
    last gradient to the end of its backward pass, from there to the optimizer, and from there to the step's end. `held`
    has shape (ranks, 4), in the order of `HostWatch.seconds`. Fields that are 0 on every rank are left out; so are the
    samples if all ranks have the same number.
    """
    backward, after, updates = within.sum(dim=2).unbind(dim=1)
    fields = {f"rank_{name}_ms": 1e3 * held[:, place] for place, name in enumerate(NAMES)}
    fields["rank_late"] = (waits >= LATE_SHARE * times).sum(dim=1)
    fields["rank_update_ms"] = 1e3 * updates
    if len(times) > 1:
        in_backward = is_ddp or bool(backward.sum() >= MIN_BACKWARD_SHARE * times.sum())
        fields["rank_exchange_ms"] = 1e3 * (backward if in_backward else backward + after)
        fields["rank_samples"] = samples * (samples.min() != samples.max())
    return {key: [round(value, 4) for value in row.tolist()] for key, row in fields.items() if bool(row.any())}


def is_ddp(trainer: Any) -> bool:
    """Whether PyTorch's DDP exchanges the gradients of a Lightning trainer."""
    return isinstance(getattr(trainer.strategy, "model", None), DistributedDataParallel)


def place(device: torch.device) -> dict[str, Any]:
    """The node of this process, and the UUID of its GPU if it has one."""
    if device.type != "cuda":
        return {"node": node_records.name()}
    return {"node": node_records.name(), "gpu": str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))}
