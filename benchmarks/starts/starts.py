"""Time from the command to the first data by parts, with an empty compilation cache and after earlier runs.

    python -m benchmarks.starts.starts --models resnet50 maskrcnn --gpus 1 2 --rounds 3 --out starts.json

A round of a model begins with an empty compilation cache. Its runs, one after another:

- `cold`: on the first of the numbers of GPUs;
- `again`: the same;
- `other rate and seed`: the same with another learning rate and another seed;
- `N GPUs`: on each other number of GPUs.

Each trains one epoch of a few steps. All rounds share a cache of generated data, so only the first run of a model makes
them. `seconds` is `time/init_sec`; `launch` is the wall time of the whole command.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tracking.base import quantities
from tracking.base.time_parts import COMPILE_PARTS, INIT_PARTS
from tracking.record import run_folder

# Sets the evaluation interval too: a language model's own is longer than these eight steps.
SHORT = ["max_epochs=1", "limit_train_batches=8", "log_every_n_steps=4", "eval_every_steps=8", "tracking.offline=true"]
PARTS = {part: quantities.init_part(part) for part in INIT_PARTS}
PARTS |= {f"compile: {part}": quantities.compile_part(part) for part in COMPILE_PARTS}


def start(options: list[str], environ: dict[str, str]) -> dict[str, float]:
    """Seconds of one launch by part. Raises CalledProcessError if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "launch.py"), *SHORT, *options]
        began = time.monotonic()
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        wall = time.monotonic() - began
        if done.returncode:
            print(done.stdout[-2000:], done.stderr[-2000:], flush=True)
            done.check_returncode()
        [path] = Path(folder).glob(f"runs/*/{run_folder.RESULT}")
        metrics = json.loads(path.read_text())["metrics"]
    parts = {part: float(metrics[key]) for part, key in PARTS.items() if key in metrics}
    return {"launch": wall, "seconds": float(metrics["time/init_sec"]), **parts}


def one_round(model: str, gpus: list[str], extra: list[str], environ: dict[str, str]) -> dict[str, dict[str, float]]:
    """Seconds by kind of start and part."""
    first = [f"model={model}", f"gpus={gpus[0]}", *extra]
    kinds = {
        "cold": first,
        "again": first,
        "other rate and seed": [*first, "seed=7", "model.optimizer.lr=0.0011"],
        **{f"{number} GPUs": [f"model={model}", f"gpus={number}", *extra] for number in gpus[1:]},
    }
    starts = {}
    with tempfile.TemporaryDirectory() as folder:
        empty = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        for kind, options in kinds.items():
            starts[kind] = start(options, {**environ, **empty})
            parts = ", ".join(f"{part} {sec:.1f}" for part, sec in starts[kind].items() if sec >= 0.1)
            print(f"{model}, {kind}: {parts}", flush=True)
    return starts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["resnet50", "maskrcnn"])
    parser.add_argument("--gpus", nargs="+", default=["1", "2"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--options", nargs="*", default=[], help="further options of launch.py")
    parser.add_argument("--out", type=Path, help="JSON file of all figures, written after each round")
    arguments = parser.parse_args()
    rounds: dict[str, list[dict[str, dict[str, float]]]] = {model: [] for model in arguments.models}
    with tempfile.TemporaryDirectory() as cache:
        environ = {**os.environ, "TIMETRIAL_CACHE": cache}
        for _ in range(arguments.rounds):
            for model in arguments.models:
                rounds[model].append(one_round(model, arguments.gpus, arguments.options, environ))
                if arguments.out:
                    arguments.out.write_text(json.dumps(rounds, indent=1))
    for model, made in rounds.items():
        for kind in made[0]:
            values = [starts[kind]["seconds"] for starts in made]
            spread = f"{min(values):.1f} to {max(values):.1f}, n = {len(values)}"
            print(f"{model}, {kind}: median {statistics.median(values):.1f} s ({spread})")


if __name__ == "__main__":
    main()
