"""A process sees its own GPU alone, as `cuda:0`, so that what one of them has compiled serves all.

PyTorch writes a device's number into the code that it generates, and into the keys of its cache. NCCL still moves data
straight between GPUs: it names them by their PCI addresses.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

VISIBLE, PLACE = "CUDA_VISIBLE_DEVICES", "LOCAL_RANK"


def be_alone(on_gpu: bool, environ: MutableMapping[str, str] = os.environ) -> None:
    """Make this process the only one that it knows of on its node: its LOCAL_RANK is 0, and its GPU the only one.

    CUDA must not have begun. An entry of CUDA_VISIBLE_DEVICES is kept as it is written: a number, a GPU's UUID or a MIG
    instance's. A process on a CPU is left the GPUs that it sees, and has no use for them.
    """
    place = int(environ[PLACE])
    if on_gpu:
        shown = environ.get(VISIBLE)
        environ[VISIBLE] = str(place) if shown is None else shown.split(",")[place].strip()
    environ[PLACE] = "0"
