"""Measures all ceilings of this machine and prints them as one JSON document: `python -m trainers.ceilings FOLDER`.

FOLDER is on the disk to be measured. `missing` names what cannot be measured here, and why.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import torch

from tracking.machine.environment import gpu_counters, nvml
from trainers.ceilings import peaks


def main(folder: Path) -> None:
    ceilings: dict[str, Any] = {}
    missing: dict[str, str] = {}

    def add(name: str, measure: Callable[[], dict[str, Any]]) -> None:
        try:
            ceilings[name] = measure()
        except (RuntimeError, OSError) as error:  # out of memory, an operator missing on the device, a full disk
            missing[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"

    num_gpus = torch.cuda.device_count()
    device = torch.device("cuda", 0) if num_gpus else torch.device("cpu")
    counters = gpu_counters(str(torch.cuda.get_device_properties(0).uuid)) if num_gpus else None
    for precision in peaks.precisions(device):
        add(f"matmul/{precision}", partial(peaks.matrix_product, precision, device, counters))
    add("copy", partial(peaks.copy, device, counters))
    if num_gpus:
        add("host/to_device", partial(peaks.host, device, True, counters))
        add("host/from_device", partial(peaks.host, device, False, counters))
    # Pairs are named by nvidia-smi's indices, so that a run on some of the GPUs finds its pairs.
    numbers = [gpu.index for gpu in nvml.visible_gpus()] if num_gpus > 1 else []
    for sender, receiver in permutations(range(len(numbers)), 2):
        sender_counters = gpu_counters(str(torch.cuda.get_device_properties(sender).uuid))
        add(f"peer/{numbers[sender]}-{numbers[receiver]}", partial(peaks.peers, sender, receiver, sender_counters))
    add("disk/read", partial(peaks.disk, folder))
    software = {"torch": torch.__version__, "cuda": torch.version.cuda}
    print(json.dumps({"ceilings": ceilings, "missing": missing, "software": software, "num_gpus": num_gpus}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
