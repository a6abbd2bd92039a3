"""Start of a run where Python writes no bytecode, with the workers' bytecode in the cache and without.

    python -m benchmarks.starts.bytecode_starts --rounds 3

Each run trains VGG for one step on digits on a CPU, under PYTHONDONTWRITEBYTECODE:

    first      once, with an empty cache, which it fills
    with       bytecode comes from the cache
    without    `stack.env` points PYTHONPYCACHEPREFIX at a missing folder; in turns with `with`

`imports` is `time/init_import_sec`, `start` is `time/init_sec`, and `cpu` is the launch's CPU seconds. This Python's
packages must not have bytecode of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tracking.machine.environment import own_sources
from tracking.record import run_folder

RUN = ["model=vgg", "gpus=0", "max_epochs=1", "limit_train_batches=1", "tracking.offline=true", "target=0.999"]
WITHOUT = ["+stack.env={PYTHONPYCACHEPREFIX:/nowhere}"]
FIGURES = {"imports": "time/init_import_sec", "start": "time/init_sec"}


def once(cache: Path, options: list[str], env: dict[str, str]) -> dict[str, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "launch.py"), *RUN, *options]
        subprocess.run(
            command, cwd=folder, env={**env, "TIMETRIAL_CACHE": str(cache)}, check=True, stdout=subprocess.DEVNULL
        )
        [path] = Path(folder).glob(f"runs/*/{run_folder.RESULT}")
        metrics = json.loads(path.read_text())["metrics"]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {name: float(metrics[key]) for name, key in FIGURES.items()} | {"cpu": cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    env |= {"PYTHONDONTWRITEBYTECODE": "1"}
    sources = own_sources()
    assert sources, "PyTorch is missing"
    if sources.have_bytecode(env):
        raise SystemExit(f"{sources.folder} has bytecode: remove its __pycache__, or use another environment")
    with tempfile.TemporaryDirectory() as folder:
        starts = {"first": [once(Path(folder), [], env)], "with": [], "without": []}
        for _ in range(arguments.rounds):
            starts["with"].append(once(Path(folder), [], env))
            starts["without"].append(once(Path(folder), WITHOUT, env))
        kept = [path.stat().st_size for path in Path(folder).glob("bytecode/**/*.pyc")]
    for name, runs in starts.items():
        for figure in runs[0]:
            values = [run[figure] for run in runs]
            spread = f"{min(values):.2f} to {max(values):.2f}, n = {len(values)}"
            print(f"{name}, {figure}: median {statistics.median(values):.2f} s ({spread})")
    print(f"kept: {len(kept)} files, {sum(kept) / 1e6:.0f} MB; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
