"""Time from sbatch to our worker's start and first step, beside a bare srun and plain Lightning.

    python -m benchmarks.starts.cluster_start --repeats 5 --nodes 1      # starts a Slurm of two nodes on this host

In turns, on the same number of nodes:

- `bare`: `sbatch` of a script whose `srun` writes the time;
- `plain`: the same with torchrun and `plain_training`, which is Lightning alone, to the end of its first step;
- `ours`: a run of timetrial, submitted with the same command by a launcher that has finished its checks. `worker` is
  the time of `init_start` in its journal, when the supervisor starts the worker. `step` is the end of its first step,
  after the worker has recorded its environment and warmed up.

Model, batch size and optimizer are the same in both trainings. Differences are taken within a turn.
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

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.overhead import plain_training
from tests.support.slurm_cluster import Cluster, free_ports
from tracking.record import journal, run_folder


def noted_sec(cwd: Path, env: dict[str, str], nodes: int, command: str) -> float:
    """Seconds from sbatch to the time that an srun step on `nodes` nodes writes to the file $NOTED."""
    noted = cwd / f"noted-{time.monotonic_ns()}"
    wrap = f"srun --nodes={nodes} --ntasks={nodes} --cpu-bind=none bash -c '{command}'"
    options = [f"--nodes={nodes}", "--ntasks-per-node=1", f"--output={cwd / 'printed.log'}"]
    environment = {**env, plain_training.NOTED: str(noted)}
    began = time.time()
    subprocess.run(
        ["sbatch", "--wait", *options, f"--wrap={wrap}"], cwd=cwd, env=environment, check=True, capture_output=True
    )
    return float(noted.read_text()) - began


def bare_sec(cwd: Path, env: dict[str, str], nodes: int) -> float:
    return noted_sec(cwd, env, nodes, '[ "$SLURM_PROCID" != 0 ] || date +%s.%N > $NOTED')


def plain_sec(cwd: Path, env: dict[str, str], nodes: int) -> float:
    [port] = free_ports(1)
    torchrun = f"{sys.executable} -m torch.distributed.run --nnodes={nodes} --nproc-per-node=1"
    rendezvous = f"--node-rank=$SLURM_PROCID --master-addr=127.0.0.1 --master-port={port}"
    return noted_sec(cwd, env, nodes, f"{torchrun} {rendezvous} -m {plain_training.__name__}")


def run_sec(cwd: Path, env: dict[str, str], nodes: int) -> tuple[float, float]:
    """Seconds from a run's sbatch to its head node's worker start, and to the end of its first step."""
    config, noted = ROOT / "tests/workloads/conf", cwd / f"noted-{time.monotonic_ns()}"
    workload = ["model=logging", "model.workload=benchmarks.overhead.noting:WORKLOAD", "gpus=0", f"nodes={nodes}"]
    options = ["cluster=slurm", "cluster.exclusive=false", "cluster.poll_sec=1", "tracking.offline=true"]
    command = [sys.executable, str(ROOT / "launch.py"), "--config-dir", str(config)]
    command += [*workload, *options, "max_epochs=1"]
    environment = {**env, plain_training.NOTED: str(noted)}
    subprocess.run(command, cwd=cwd, env=environment, check=True, capture_output=True)
    [folder] = {path.parent for path in cwd.glob("runs/*/job.sbatch")}
    began = (folder / "job.sbatch").stat().st_mtime  # sbatch follows at once
    events = journal.events(folder / run_folder.JOURNAL)
    started = next(event.time_ms for event in events if event.key == "init_start") / 1e3
    folder.rename(cwd / folder.name)
    return started - began, float(noted.read_text()) - began


def described(seconds: list[float]) -> dict[str, Any]:
    error = statistics.stdev(seconds) / len(seconds) ** 0.5 if len(seconds) > 1 else None
    figures = {"mean_sec": statistics.fmean(seconds), "standard_error_sec": error}
    least = {"min_sec": min(seconds), "median_sec": statistics.median(seconds)}
    return {"n": len(seconds), **figures, **least, "each_sec": seconds}


def added(values: list[float], baseline: list[float]) -> dict[str, Any]:
    return described([value - base for value, base in zip(values, baseline, strict=True)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=1, choices=(1, 2))
    arguments = parser.parse_args()
    bare, plain, worker, step, loads = [], [], [], [], []
    with tempfile.TemporaryDirectory() as folder, Cluster() as cluster:
        env = {**os.environ, **cluster.env, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        for _ in range(arguments.repeats):
            bare.append(bare_sec(Path(folder), env, arguments.nodes))
            plain.append(plain_sec(Path(folder), env, arguments.nodes))
            started, stepped = run_sec(Path(folder), env, arguments.nodes)
            worker.append(started)
            step.append(stepped)
            loads.append(os.getloadavg()[0])
    each = {"bare": bare, "plain": plain, "worker": worker, "step": step}
    figures = {name: described(seconds) for name, seconds in each.items()}
    differences = {"worker_beyond_bare": added(worker, bare), "step_beyond_plain": added(step, plain)}
    print(json.dumps({"nodes": arguments.nodes, **figures, **differences, "load_averages": loads}, indent=1))


if __name__ == "__main__":
    main()
