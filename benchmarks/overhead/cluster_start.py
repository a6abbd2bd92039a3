"""How long a job of Slurm's takes from its submission to our worker's start, beside one that does nothing.

    python -m benchmarks.overhead.cluster_start --repeats 5 --nodes 1      # starts a Slurm of two nodes on this host

By turns: `sbatch` of a script whose `srun` notes the time, and a run of timetrial's, submitted with the same command by
a launcher that has checked all before. The run's time is that of `init_start` in its journal, at which its supervisor
starts the worker, which is from there on the same as without a cluster. The difference is what timetrial adds.
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
from typing import Any

from tests.slurm_cluster import Cluster
from tests.tracking.folders import wait_for
from tracking.run import journal, run_folder

ROOT = Path(__file__).resolve().parents[2]


def bare_sec(cwd: Path, env: dict[str, str], nodes: int) -> float:
    """From sbatch to the first command of an srun step on as many nodes."""
    noted = cwd / f"noted-{time.monotonic_ns()}"
    began = time.time()
    note = f'[ "$SLURM_PROCID" = 0 ] && date +%s.%N > {noted}.part && mv {noted}.part {noted}'
    wrap = f"srun --nodes={nodes} --ntasks={nodes} bash -c '{note}'"
    options = [f"--nodes={nodes}", "--ntasks-per-node=1", "--output=/dev/null"]
    subprocess.run(["sbatch", *options, f"--wrap={wrap}"], cwd=cwd, env=env, check=True, capture_output=True)
    wait_for(noted.exists)
    return float(noted.read_text()) - began


def run_sec(cwd: Path, env: dict[str, str], nodes: int) -> float:
    """From the sbatch of a run to the start of its first node's worker, which has met the others by then."""
    config = ROOT / "tests/workloads/conf"
    asked = ["--config-dir", str(config), "model=tiny", "gpus=0", "cluster=slurm", "cluster.exclusive=false"]
    command = [sys.executable, str(ROOT / "launch.py"), *asked, f"nodes={nodes}", "max_epochs=1", "cluster.poll_sec=1"]
    subprocess.run([*command, "tracking.offline=true"], cwd=cwd, env=env, check=True, capture_output=True)
    [folder] = {path.parent for path in cwd.glob("runs/*/job.sbatch")}
    began = (folder / "job.sbatch").stat().st_mtime  # sbatch is called when it is written
    events = journal.events(folder / run_folder.JOURNAL)
    started = next(event.time_ms for event in events if event.key == "init_start") / 1e3
    folder.rename(cwd / folder.name)
    return started - began


def described(seconds: list[float]) -> dict[str, Any]:
    error = statistics.stdev(seconds) / len(seconds) ** 0.5 if len(seconds) > 1 else None
    return {"n": len(seconds), "mean_sec": statistics.fmean(seconds), "standard_error_sec": error, "each_sec": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=1, choices=(1, 2))
    arguments = parser.parse_args()
    bare, ours = [], []
    with tempfile.TemporaryDirectory() as folder, Cluster() as cluster:
        env = {**os.environ, **cluster.env, "PYTHONPATH": str(ROOT)}
        for _ in range(arguments.repeats):
            bare.append(bare_sec(Path(folder), env, arguments.nodes))
            ours.append(run_sec(Path(folder), env, arguments.nodes))
    added = [own - without for own, without in zip(ours, bare, strict=True)]
    figures = {"nodes": arguments.nodes, "bare": described(bare), "ours": described(ours), "added": described(added)}
    print(json.dumps(figures | {"load_average": os.getloadavg()[0]}, indent=1))


if __name__ == "__main__":
    main()
