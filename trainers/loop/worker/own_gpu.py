"""A process sees its own GPU alone, as `cuda:0`, so that what one of them has compiled serves all.

PyTorch writes a device's number into the code that it generates, and into the keys of its cache. NCCL still moves data
straight between GPUs: it names them by their PCI addresses.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

VISIBLE, PLACE = "CUDA_VISIBLE_DEVICES", "LOCAL_RANK"


def show_own_gpu(environ: MutableMapping[str, str] = os.environ) -> None:
    """Leave this process of its node's GPUs the one at its LOCAL_RANK, which then is 0. CUDA must not have begun.

    An entry of CUDA_VISIBLE_DEVICES is kept as it is written: a number, a GPU's UUID or a MIG instance's.
    """
    place = int(environ[PLACE])
    shown = environ.get(VISIBLE)
    environ[VISIBLE] = str(place) if shown is None else shown.split(",")[place].strip()
    environ[PLACE] = "0"
