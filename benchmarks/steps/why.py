"""Measures, where there is a GPU, what only a GPU can show of "and why": one command, about ten minutes.

    python benchmarks/steps/why.py --out why    # of two GPUs or more also their links

It runs, one after the other: the tests marked `gpu` of profile and counters; the ceilings; the study of precisions with
VGG, to its target; ResNet-50 in fp32 and bf16, traced, and what the two profiles share (`diff --kernels`); and on two
GPUs or more ResNet-50 on one pair, or on a near and a far one, with NCCL's direct transfers and without. What each
command printed is in a file of `--out`, beside the sweeps' folders with their reports. `--dry-run` prints the commands.
A command that fails does not stop the others.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tracking.environment import nvml

LIMIT_SEC = 400  # a command's
COMMON = "tracking.system_metrics_interval_sec=0.5 tracking.offline=true"
# Generated images, and so few steps that compiling takes most of the time.
SHORT = "model=resnet50 dataset=synthetic max_epochs=2 limit_train_batches=60 log_every_n_steps=10"
TESTS = "tests/trainers/loop/test_kernel_profile.py tests/tracking/environment/test_gpm.py"


def commands(indices: list[int]) -> Iterator[tuple[str, str]]:
    """Name and words of each command, on GPUs with these indices."""
    yield "tests", f"-m pytest -q -n 0 -m gpu {TESTS}"
    yield "ceilings", "-m tracking ceilings"
    yield "precision", launched("+study=precision model=vgg", "precision")
    yield "profiles", launched(f"{SHORT} gpus=1 precision=fp32,bf16 profile=true", "profiles")
    profiled = (f"resnet50-synthetic-{precision}-1gpu-seed1" for precision in ("fp32", "bf16"))
    yield "kernels", f"-m tracking diff {' '.join(profiled)} --kernels --from-folders --runs-dir runs-profiles"
    if len(indices) > 1:
        near, far = [indices[0], indices[1]], [indices[0], indices[-1]]
        pairs = ",".join(dict.fromkeys(f"[{first},{second}]" for first, second in (near, far)))
        links = "+stack.env.NCCL_P2P_DISABLE=0,1 overlap_grad_reduce=false"
        yield "topology", launched(f"{SHORT} gpus={pairs} precision=bf16 seed=1,2,3 {links}", "topology")
        by = "--by env.topology,gpu_indices,stack.env.NCCL_P2P_DISABLE"
        yield "links", f"-m tracking report timetrial {by} --check --from-folders --runs-dir runs-topology --out links"


def launched(overrides: str, name: str) -> str:
    return f"{ROOT / 'launch.py'} -m {COMMON} {overrides} runs_dir=runs-{name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("why"))
    parser.add_argument("--dry-run", action="store_true", help="print the commands for eight GPUs, and run none")
    arguments = parser.parse_args()
    if arguments.dry_run:
        for name, words in commands(list(range(8))):
            print(f"{name}: python {words}")
        return 0
    indices = [gpu.index for gpu in nvml.visible_gpus()]
    if not indices:
        parser.error("no NVIDIA GPU is visible here; --dry-run prints what would be run")
    arguments.out.mkdir(parents=True, exist_ok=True)
    codes = [run(name, words, arguments.out) for name, words in commands(indices)]
    return int(any(codes))


def run(name: str, words: str, out: Path) -> int:
    """The exit code; what it printed is in a file."""
    began = time.monotonic()
    folder = ROOT if name == "tests" else out
    with (out / f"{name}.txt").open("w", encoding="utf-8") as file:
        command = ["timeout", str(LIMIT_SEC), sys.executable, *shlex.split(words)]
        environment_folder = f"PYTHONPATH={ROOT}"
        code = subprocess.run(
            ["env", environment_folder, *command], cwd=folder, stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode
    print(f"{name}: exit code {code} after {time.monotonic() - began:.0f} s; {out / f'{name}.txt'}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
