"""Measures all workloads on one to eight GPUs, in calls of ten minutes that go on where the last one stopped.

    python benchmarks/steps/scaling.py --out scaling                # again until it says that all is done
    python benchmarks/steps/scaling.py --out scaling --dry-run      # the commands, for eight GPUs

First the rate, on generated data at a batch that stays the same on each GPU (weak scaling); then time to accuracy, over
`+study=scaling`, of each workload by itself, three seeds each. A sweep that a call's end cuts short is resumed by the
next one. What each printed is in a file of `--out`, beside the sweeps' folders with their reports.
"""

from __future__ import annotations

import argparse
import re
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

MODELS = ("vgg", "resnet50", "ssd", "maskrcnn", "transformer", "gnmt", "ncf")
COUNTS = (1, 2, 4, 8)
COMMON = "tracking.offline=true tracking.system_metrics_interval_sec=1 precision=bf16"
# So few steps that compiling takes most of the time.
SHORT = "max_epochs=2 limit_train_batches=60 log_every_n_steps=10"
LEAST_SEC = 60.0  # With less of a call's time left no sweep is begun.
STOP_SEC = 30.0  # what a launcher has to stop its job, and to write what there is


def sweeps(num_gpus: int) -> Iterator[tuple[str, str]]:
    """Name and overrides of each sweep on a machine with so many GPUs."""
    counts = ",".join(str(count) for count in COUNTS if count <= num_gpus)
    for model in MODELS:
        if model != "vgg":  # It has no generated data: its images are small enough to lie on the GPU.
            yield f"rate-{model}", f"model={model} dataset=synthetic gpus={counts} seed=1,2,3 {SHORT}"
    for model in MODELS:
        yield f"accuracy-{model}", f"+study=scaling model={model} gpus={counts} seed=1,2,3"
    if num_gpus > 1:
        yield "links", f"+study=topology model=resnet50 gpus={counts.split(',', 1)[1]} seed=1,2,3"


def command(name: str, overrides: str, out: Path) -> list[str]:
    """The launcher's words: of a sweep that was cut short, those that resume it."""
    printed = out / f"{name}.txt"
    cut = re.findall(r"sweep\.resume=(\S+)", printed.read_text(encoding="utf-8")) if printed.exists() else []
    words = f"sweep.resume={cut[-1]}" if cut else f"-m {COMMON} {overrides}"
    return [sys.executable, str(ROOT / "launch.py"), *shlex.split(words), f"runs_dir=runs-{name}"]


def run(name: str, words: list[str], out: Path, limit_sec: float) -> int | None:
    """The exit code; None where the time was up, and the launcher was told to stop."""
    with (out / f"{name}.txt").open("a", encoding="utf-8") as file:
        process = subprocess.Popen(words, cwd=out, stdout=file, stderr=subprocess.STDOUT)
        try:
            return process.wait(limit_sec)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("scaling"))
    parser.add_argument("--minutes", type=float, default=10.0, help="how long a call may take")
    parser.add_argument("--dry-run", action="store_true", help="print the commands for eight GPUs, and run none")
    arguments = parser.parse_args()
    if arguments.dry_run:
        for name, overrides in sweeps(max(COUNTS)):
            print(f"{name}: python {shlex.join(command(name, overrides, arguments.out)[1:])}")
        return 0
    num_gpus = len(nvml.visible_gpus())
    if not num_gpus:
        parser.error("no NVIDIA GPU is visible here; --dry-run prints what would be run")
    arguments.out.mkdir(parents=True, exist_ok=True)
    return measure(num_gpus, arguments.out, time.monotonic() + 60 * arguments.minutes)


def measure(num_gpus: int, out: Path, until: float) -> int:
    """0 when all is done, also where a sweep failed, as its file says; 1 when another call has to go on."""
    for name, overrides in sweeps(num_gpus):
        done = out / f"{name}.done"
        if done.exists():
            continue
        left_sec = until - time.monotonic() - STOP_SEC
        code = run(name, command(name, overrides, out), out, left_sec) if left_sec > LEAST_SEC else None
        if code is None:
            print(f"{name}: to be gone on with; call this again")
            return 1
        done.write_text(f"{code}\n", encoding="utf-8")
        print(f"{name}: exit code {code}; {out / f'{name}.txt'}", flush=True)
    print("all is done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
