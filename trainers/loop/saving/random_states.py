"""The random states of a process: what Lightning leaves out of a checkpoint."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def random_states(device: torch.device) -> dict[str, Any]:
    """The states of every generator that a training may draw from, in types that torch.load takes for safe."""
    numpy = np.random.get_state(legacy=False)
    assert isinstance(numpy, dict)
    states = {
        "python": random.getstate(),
        "numpy": numpy | {"state": numpy["state"] | {"key": numpy["state"]["key"].tolist()}},
        "torch": torch.get_rng_state(),
    }
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def set_random_states(states: dict[str, Any], device: torch.device) -> None:
    """Put back what `random_states` returned."""
    random.setstate(states["python"])
    key = np.array(states["numpy"]["state"]["key"], dtype=np.uint32)
    np.random.set_state(states["numpy"] | {"state": states["numpy"]["state"] | {"key": key}})
    torch.set_rng_state(states["torch"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
