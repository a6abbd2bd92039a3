"""Reads and restores the random states of a process, which Lightning leaves out of a checkpoint."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def random_states(device: torch.device) -> dict[str, Any]:
    """Return the states of all generators that a training may use, in types that torch.load considers safe."""
    numpy = np.random.get_state(legacy=False)
    assert isinstance(numpy, dict)
    states = {
        "python": random.getstate(),
        "numpy": numpy | {"state": numpy["state"] | {"key": numpy["state"]["key"].tolist()}},
        "torch": torch.get_rng_state(),
    }
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def set_random_states(states: dict[str, Any], device: torch.device) -> None:
    """Restore the states that `random_states` returned."""
    random.setstate(states["python"])
    key = np.array(states["numpy"]["state"]["key"], dtype=np.uint32)
    np.random.set_state(states["numpy"] | {"state": states["numpy"]["state"] | {"key": key}})
    torch.set_rng_state(states["torch"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
