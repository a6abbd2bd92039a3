"""Starts and steps of a sweep's forked jobs, with PyTorch's traces kept (TIMETRIAL_KEEP_TRACES=1) and without.

    python -m benchmarks.starts.kept_traces --model resnet50 --seeds 4 --options dataset=shapes gpus=1

From an empty compilation cache, one sweep over seeds runs without, one with, and so on for each round. In the first
round the first job of each compiles; printed are all jobs: seconds from the command to the first data, by parts, the
milliseconds of a step, and the last loss, which has to be the same for the same seed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.starts.starts import PARTS
from tracking.record import journal, run_folder

SHORT = ("max_epochs=1", "limit_train_batches=150", "tracking.offline=true", "log_every_n_steps=25")
STEP = "throughput/step_ms_p50"
LOSS = "train/loss"


def sweep(options: list[str], num_seeds: int, environ: dict[str, str]) -> list[dict[str, float]]:
    """Figures of each job. Raises SystemExit if the sweep fails."""
    seeds = ",".join(str(seed) for seed in range(1, num_seeds + 1))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "launch.py"), "-m", *SHORT, *options, f"seed={seeds}"]
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        paths = sorted(Path(folder).glob(f"runs/*/*/{run_folder.RESULT}"), key=lambda path: path.stat().st_mtime)
        for output in Path(folder).glob("runs/*/*/*.log"):
            for line in output.read_text(errors="replace").splitlines():
                if "traced anew" in line or "not used, since" in line:
                    print(line, flush=True)
        if done.returncode or len(paths) != num_seeds:
            raise SystemExit(f"exit code {done.returncode}: {done.stdout[-3000:]} {done.stderr[-3000:]}")
        return [figures(path) for path in paths]


def figures(result: Path) -> dict[str, float]:
    metrics = json.loads(result.read_text())["metrics"]
    parts = {part: float(metrics[key]) for part, key in PARTS.items() if metrics.get(key, 0.0) >= 0.05}
    events = {event.key: event.values for event in journal.events(result.parent / run_folder.JOURNAL)}
    compiled = {name: events.get("compiled", {}).get(name, 0) for name in ("num_cached", "num_compiled")}
    records = journal.read(result.parent / run_folder.JOURNAL)
    losses = [record.values[LOSS] for record, _ in records if LOSS in record.values]
    return {
        "start": float(metrics["time/init_sec"]),
        **parts,
        **compiled,
        STEP: float(metrics.get(STEP, 0.0)),
        "last loss": losses[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--options", nargs="*", default=[], help="further options of launch.py")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        empty = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        for _ in range(arguments.rounds):
            for keep in ("0", "1"):
                environ = {**os.environ, **empty, "TIMETRIAL_KEEP_TRACES": keep}
                for job in sweep([f"model={arguments.model}", *arguments.options], arguments.seeds, environ):
                    values = ", ".join(f"{name} {value:.7g}" for name, value in job.items())
                    print(f"{arguments.model}, {'kept' if keep == '1' else 'traced'}: {values}", flush=True)


if __name__ == "__main__":
    main()
