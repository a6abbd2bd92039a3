"""CPU time of a launcher that follows many Slurm jobs, and whether rows get lost when it is killed.

    python -m benchmarks.overhead.followed_jobs --jobs 200 --sec 480      # starts a Slurm of two nodes on this host

The jobs are stand-ins: Slurm runs each in place of a supervisor, and it writes a run's journal, one row every ten
seconds. Submission, queue, following, mirror to a database, and report are the product's. The launcher is killed when
half of the jobs have ended, and `python -m tracking follow` continues. CPU seconds are those of the launcher and of the
Slurm commands that it starts, from /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tracking.record import Journal, Result, run_folder

NUM_ROWS = 48  # of each job
LENGTH = "JOB_SEC"  # environment variable: seconds of a stand-in


def stand_in(folder: Path) -> None:
    """Write the journal and the result of a run, in place of its supervisor and worker."""
    from tracking.jobs.node import ticket

    log = Journal(folder / run_folder.JOURNAL)
    for key in ("init_start", "init_stop", "run_start"):
        log.event(key)
    for step in range(1, NUM_ROWS + 1):
        time.sleep(float(os.environ[LENGTH]) / NUM_ROWS)
        log.metrics({"train/loss": 1 / step, "eval/accuracy": step / NUM_ROWS, "epoch": float(step)}, step)
    log.event("run_stop", status="success")
    log.close()
    run_folder.write_result(folder, Result("finished", metrics={"world_size": 1.0}))
    ticket.mark(folder, ended=True)


def launch(arguments: list[str]) -> int:
    """Run launch.py with stand-ins as jobs."""
    import launch as launcher
    from tracking.jobs.queues import batch_script

    batch_script.SUPERVISOR = "benchmarks.overhead.followed_jobs"
    sys.argv = ["launch.py", *arguments]
    return launcher.main()


class Meter:
    """CPU seconds of a process and of the children that it has waited for."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._began = time.monotonic()
        self.points: list[tuple[float, float]] = []  # seconds since the start, CPU seconds

    def watch(self, done: Callable[[], bool]) -> None:
        """Sample twice a second until `done` or the process has ended."""
        while not done():
            with suppress(psutil.Error):
                self.points.append((time.monotonic() - self._began, sum(self._process.cpu_times()[:4])))
            if not self._process.is_running() or self._process.status() == psutil.STATUS_ZOMBIE:
                return
            time.sleep(0.5)

    def between(self, first: float, last: float) -> tuple[float, float]:
        """Wall-clock and CPU seconds of the samples from `first` to `last`, both in seconds since the start."""
        inside = [point for point in self.points if first <= point[0] <= last]
        return inside[-1][0] - inside[0][0], inside[-1][1] - inside[0][1]


def count(cwd: Path, pattern: str) -> int:
    return len(list(cwd.glob(f"runs/*/*/{pattern}")))


def rows(cwd: Path) -> tuple[int, int]:
    """Number of rows in the journals, and in the database."""
    from mlflow import MlflowClient

    from tracking.store.mirror import Mirror

    client = MlflowClient(f"sqlite:///{cwd / 'mlflow.db'}")
    written = sent = 0
    for path in cwd.glob("runs/*/*/journal.jsonl"):
        written += sum('"train/loss"' in line for line in path.read_text().splitlines())
        run_id = Mirror(path.parent).run_id
        sent += len(client.get_metric_history(run_id, "train/loss")) if run_id else 0
    return written, sent


def measure(cwd: Path, num_jobs: int, job_sec: float, env: dict[str, str]) -> dict[str, Any]:
    """Figures of a sweep whose launcher is killed halfway and replaced by another."""
    config = ROOT / "tests/workloads/conf"
    options = [
        "--launch", "-m", "--config-dir", str(config), "model=tiny", "gpus=0", "cluster=slurm",
        "cluster.exclusive=false", "tracking.upload_wait_sec=600",
        f"seed=range({num_jobs})", f"cluster.jobs_at_once={num_jobs}",
    ]  # fmt: skip
    environment = {**os.environ, **env, LENGTH: str(job_sec), "PYTHONPATH": str(ROOT)}
    log = (cwd / "out").open("w")
    command = [sys.executable, "-m", "benchmarks.overhead.followed_jobs", *options]
    first = subprocess.Popen(command, cwd=cwd, env=environment, stdout=log, stderr=log)
    meter = Meter(first.pid)
    meter.watch(lambda: count(cwd, "cluster.json") == num_jobs)
    submitted = meter.points[-1][0]
    meter.watch(lambda: count(cwd, "result.json") >= num_jobs // 2)
    halfway = meter.points[-1][0]
    first.kill()
    first.wait()
    [sweep] = [path.parent for path in cwd.glob("runs/*/sweep.json")]
    command = [sys.executable, "-m", "tracking", "follow", str(sweep)]
    second = subprocess.Popen(command, cwd=cwd, env=environment, stdout=log, stderr=log)
    again = Meter(second.pid)
    again.watch(lambda: second.poll() is not None)
    following, following_cpu = meter.between(submitted, halfway)
    rest, rest_cpu = again.between(0, float("inf"))
    whole, whole_cpu = halfway + rest, meter.points[-1][1] + rest_cpu
    written, sent = rows(cwd)
    return {
        "jobs": num_jobs, "job_sec": job_sec, "exit_code": second.returncode,
        "submitting_sec": submitted, "submitting_cpu_sec": meter.between(0, submitted)[1],
        "following_sec": following, "following_share_of_a_core": following_cpu / following,
        "second_launcher_sec": rest, "second_launcher_share_of_a_core": rest_cpu / rest,
        "in_all_sec": whole, "in_all_share_of_a_core": whole_cpu / whole,
        "rows_written": written, "rows_in_mlflow": sent, "load_average": os.getloadavg()[1],
    }  # fmt: skip


def main() -> None:
    from tests.support.slurm_cluster import Cluster

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--sec", type=float, default=480, help="seconds of each job")
    parser.add_argument("--out", type=Path, help="JSON file of the figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Cluster(cpus=arguments.jobs) as cluster:
        figures = measure(Path(folder), arguments.jobs, arguments.sec, cluster.env)
        print(
            json.dumps(figures, indent=1) if figures["exit_code"] == 0 else (Path(folder) / "out").read_text()[-5000:]
        )
        if arguments.out:
            arguments.out.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--launch"]:
        sys.exit(launch(sys.argv[2:]))
    elif len(sys.argv) == 2 and (Path(sys.argv[1]) / run_folder.CONFIG).exists():
        stand_in(Path(sys.argv[1]))
    else:
        main()
