"""Time and memory of a report on 1,000 runs with 60 metrics each.

    python benchmarks/reports/report_speed.py

Writes the runs to an SQLite database with MLflow's client, each with config.yaml and fingerprint.json. Then times
`python -m tracking report` on them from start to exit, imports included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

GPUS, PRECISIONS, BATCHES = (1, 2, 4, 8), ("fp32", "bf16"), (32, 64, 128)  # 24 settings
POINTS = 10  # of each curve


def fill(uri: str, num_runs: int, num_metrics: int) -> None:
    """Write a sweep of `num_runs` runs with `num_metrics` metric keys each, ten of them curves."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

    client = MlflowClient(uri)
    database = Path(uri.removeprefix("sqlite:///"))
    experiment = client.create_experiment("speed", artifact_location=(database.parent / "artifacts").as_uri())
    for number in range(num_runs):
        gpus, precision = GPUS[number % 4], PRECISIONS[number // 4 % 2]
        batch = BATCHES[number // 8 % 3]
        run = client.create_run(experiment, 1000, run_name=f"vgg-digits-{precision}-{gpus}gpu-seed{number}")
        step_sec = 0.1 / gpus**0.9 * (1 + 0.001 * (number % 7)) * batch / 32
        values = figures(gpus, step_sec, batch)
        values |= {f"other/{place}": float(place) for place in range(num_metrics - len(values) - len(curves(0)))}
        metrics = [Metric(key, value, 60_000, POINTS) for key, value in values.items()]
        for point in range(1, POINTS + 1):
            metrics += [Metric(key, value, 1000 * point, point) for key, value in curves(point).items()]
        params = {"model": "vgg", "dataset": "digits", "gpus": gpus, "precision": precision, "batch_size": batch}
        params |= {"seed": number, "target_metric": "accuracy", "target_value": 0.9, "global_batch_size": batch * gpus}
        tags = {"sweep": "speed-1000", "config_hash": str(number), "env.driver": "580.1", "env.cuda": "13.0"}
        client.log_batch(
            run.info.run_id,
            metrics,
            [Param(key, str(value)) for key, value in params.items()],
            [RunTag(*tag) for tag in tags.items()],
        )
        client.log_text(run.info.run_id, "dataset:\n  name: digits\n", "config.yaml")
        client.log_text(run.info.run_id, json.dumps({"used": [], "environment": {"A": "b"}}), "fingerprint.json")
        client.set_terminated(run.info.run_id, "FINISHED", 60_000)


def figures(gpus: int, step_sec: float, batch: int) -> dict[str, float]:
    """Summary metrics of a run."""
    return {
        "time/to_accuracy_sec": 100 * step_sec,
        "time/to_accuracy_train_sec": 90 * step_sec,
        "time/epoch_sec": 10 * step_sec,
        "epochs/to_accuracy": 9.0,
        "target_reached": 1.0,
        "throughput/samples_per_sec": gpus * batch / step_sec,
        "world_size": float(gpus),
        "cost/usd": step_sec,
        "cost/to_accuracy_usd": step_sec,
    }


def curves(point: int) -> dict[str, float]:
    """Metrics with a curve, at one of its points."""
    rates = ("disk_read", "disk_write", "network_receive", "network_transmit")
    return {
        "eval/accuracy": point / POINTS,
        "epoch": float(point),
        "train/loss": 1 / (point + 1),
        "system/cpu_utilization_percentage": 50.0 + point,
        **{f"system/gpu_{gpu}_utilization_percentage": 90.0 for gpu in range(2)},
        **{f"system/{rate}_megabytes_per_sec": float(point) for rate in rates},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--metrics", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder for the database; an existing one is used again")
    arguments = parser.parse_args()
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{folder / 'mlflow.db'}"
        if not (folder / "mlflow.db").exists():
            begin = time.monotonic()
            fill(uri, arguments.runs, arguments.metrics)
            print(f"filled in {time.monotonic() - begin:.0f} s", flush=True)
        # As in an installation, bytecode is cached: the first start compiles it.
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
        for _ in range(arguments.repeats):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            begin = time.monotonic()
            command = [sys.executable, "-m", "tracking", "report", "speed-1000", "--uri", uri, "--out", scratch]
            subprocess.run(command, cwd=ROOT, env=environ, check=True, stdout=subprocess.DEVNULL)
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            wall = time.monotonic() - begin
            cpu = usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime
            print(f"{wall:.1f} s ({cpu:.1f} s of CPU), at most {usage.ru_maxrss / 1024:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
