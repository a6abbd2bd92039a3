"""Measure why trainings are as fast as they are, as far as it needs GPUs, in calls of ten minutes.

    python benchmarks/steps/why.py --out why    # again until all is done; on two GPUs or more also their links

A call continues where the last one ended. In this order:

1. the tests marked `gpu` of profile and counters;
2. the ceilings;
3. on two GPUs or more, ResNet-50 on a near and a far pair, with NCCL's direct transfers and without;
4. side by side where there is room: traced ResNet-50 in fp32 and bf16, and the study of precisions with VGG;
5. the kernels that both profiles share (`diff --kernels`).

in_calls.py says which files are written; `--dry-run` prints the commands.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.steps.in_calls import ROOT, Command, main, sweep

COMMON = "tracking.system_metrics_interval_sec=0.5"
# Generated images. With so few steps, compiling takes most of the time.
SHORT = "model=resnet50 dataset=synthetic max_epochs=2 limit_train_batches=60 log_every_n_steps=10"
TESTS = ("tests/trainers/loop/test_kernel_profile.py", "tests/tracking/machine/environment/test_gpm.py")


def commands(indices: list[int]) -> Iterator[Command]:
    """Commands for GPUs with these indices."""
    tests = f"-m pytest -q -n 0 -m gpu --rootdir {ROOT} {' '.join(str(ROOT / test) for test in TESTS)}"
    yield Command("tests", tests)
    yield Command("ceilings", "-m tracking ceilings")
    if len(indices) > 1:
        near, far = [indices[0], indices[1]], [indices[0], indices[-1]]
        pairs = ",".join(dict.fromkeys(f"[{first},{second}]" for first, second in (near, far)))
        links = "+stack.env.NCCL_P2P_DISABLE=0,1 overlap_grad_reduce=false"
        yield Command("topology", sweep(f"{COMMON} {SHORT} gpus={pairs} precision=bf16 seed=1,2,3 {links}", "topology"))
        by = "--by env.topology,gpu_indices,stack.env.NCCL_P2P_DISABLE"
        report = f"-m tracking report timetrial {by} --check --from-folders --runs-dir topology --out links"
        yield Command("links", report)
    profiles = sweep(f"{COMMON} {SHORT} gpus=1 precision=fp32,bf16 profile=true", "profiles")
    yield Command("profiles", profiles, gpus=1)
    yield Command("precision", sweep(f"{COMMON} +study=precision model=vgg", "precision"), gpus=1)
    profiled = (f"resnet50-synthetic-{precision}-1gpu-seed1" for precision in ("fp32", "bf16"))
    yield Command("kernels", f"-m tracking diff {' '.join(profiled)} --kernels --from-folders --runs-dir profiles")


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", commands, default="why"))
