"""Hides the other GPUs from a process: it sees only its own, as `cuda:0`, so that all can use one compiled code.

PyTorch writes a device's number into generated code and into the keys of its cache. NCCL still moves data directly
between GPUs, because it names them by PCI address.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

VISIBLE, PLACE = "CUDA_VISIBLE_DEVICES", "LOCAL_RANK"


def be_alone(on_gpu: bool, environ: MutableMapping[str, str] = os.environ) -> None:
    """Set LOCAL_RANK to 0 and, for a run on GPUs, CUDA_VISIBLE_DEVICES to this process's own GPU.

    Call it before CUDA is initialised. An entry of CUDA_VISIBLE_DEVICES is kept as it is: a number, or the UUID of a
    GPU or a MIG instance.
    """
    place = int(environ[PLACE])
    if on_gpu:
        shown = environ.get(VISIBLE)
        environ[VISIBLE] = str(place) if shown is None else shown.split(",")[place].strip()
    environ[PLACE] = "0"
