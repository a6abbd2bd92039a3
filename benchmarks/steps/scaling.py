"""Measures all workloads on one to eight GPUs, in calls of ten minutes that go on where the last one stopped.

    python benchmarks/steps/scaling.py --out scaling                # again until it says that all is done
    python benchmarks/steps/scaling.py --out scaling --dry-run      # the commands, for eight GPUs

First the rate, on generated data at a batch that stays the same on each GPU (weak scaling); then time to accuracy, over
`+study=scaling`, of each workload by itself, three seeds each. See in_calls.py for what is where.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.steps import in_calls

MODELS = ("vgg", "resnet50", "ssd", "maskrcnn", "transformer", "gnmt", "ncf")
COUNTS = (1, 2, 4, 8)
COMMON = "tracking.system_metrics_interval_sec=1 precision=bf16"
# So few steps that compiling takes most of the time.
SHORT = "max_epochs=2 limit_train_batches=60 log_every_n_steps=10"


def commands(indices: list[int]) -> Iterator[tuple[str, str]]:
    """Name and words of each sweep on a machine with so many GPUs."""
    for name, overrides in sweeps(len(indices)):
        yield name, in_calls.sweep(name, f"{COMMON} {overrides}")


def sweeps(num_gpus: int) -> Iterator[tuple[str, str]]:
    counts = ",".join(str(count) for count in COUNTS if count <= num_gpus)
    for model in MODELS:
        if model != "vgg":  # It has no generated data: its images are small enough to lie on the GPU.
            yield f"rate-{model}", f"model={model} dataset=synthetic gpus={counts} seed=1,2,3 {SHORT}"
    for model in MODELS:
        yield f"accuracy-{model}", f"+study=scaling model={model} gpus={counts} seed=1,2,3"
    if num_gpus > 1:
        yield "links", f"+study=topology model=resnet50 gpus={counts.split(',', 1)[1]} seed=1,2,3"


if __name__ == "__main__":
    sys.exit(in_calls.main(__doc__ or "", commands, default="scaling"))
