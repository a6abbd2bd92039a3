"""What each rank's time in a window went to, as its event says it; and where each rank computes."""

from __future__ import annotations

from typing import Any

import torch

from tracking.measure.steps.host_watch import NAMES
from tracking.record import node_records

LATE = 0.1  # A rank's loader is late in a step if it waits for its batch for this share of the step or more.
PLACES = "rank_places"  # the event that says where ranks compute


def of_window(
    times: torch.Tensor, waits: torch.Tensor, exchanges: torch.Tensor, updates: torch.Tensor, held: torch.Tensor,
    samples: torch.Tensor,
) -> dict[str, list[float]]:  # fmt: skip
    """By field of the event, a value a rank: milliseconds, and of `rank_late` the number of steps.

    The first four are seconds of (ranks, steps); `held` is (ranks, 4), as `HostWatch.seconds` orders them. What is 0
    on every rank is left out, and so are samples where all have as many.
    """
    fields = {f"rank_{name}_ms": 1e3 * held[:, place] for place, name in enumerate(NAMES)}
    fields["rank_late"] = (waits >= LATE * times).sum(dim=1)
    fields["rank_update_ms"] = 1e3 * updates.sum(dim=1)
    if len(times) > 1:
        fields["rank_exchange_ms"] = 1e3 * exchanges.sum(dim=1)
        fields["rank_samples"] = samples * (samples.min() != samples.max())
    return {key: [round(value, 4) for value in row.tolist()] for key, row in fields.items() if bool(row.any())}


def place(device: torch.device) -> dict[str, Any]:
    """The node of this process, and the UUID of its GPU where it has one."""
    if device.type != "cuda":
        return {"node": node_records.name()}
    return {"node": node_records.name(), "gpu": str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))}
