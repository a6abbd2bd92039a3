"""Rows a second into a local MLflow server over SQLite, by the mirror and by one `log_metric` call a row.

    python benchmarks/server/mirror_rate.py [NUM_ROWS] [--single NUM_CALLS]

Both write the same ten keys to the same new server. The mirror reads its rows from a journal with one record a step.
Single calls are timed before and after the mirror, on another run; a few hundred stand for any number.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.mlflow_server import MlflowServer
from tracking.record import Journal, documents, run_folder
from tracking.store.mirror import Mirror
from tracking.store.server import ENVIRONMENT

NUM_KEYS = 10


def make_folder(root: Path, uri: str, num_rows: int) -> Path:
    folder = run_folder.create(root, "run")
    documents.write_json(folder / run_folder.RUN, run_folder.RunInfo("run", "mirror_rate", uri))
    journal = Journal(folder / run_folder.JOURNAL)
    for step in range(num_rows // NUM_KEYS):
        journal.metrics({f"train/metric_{key}": step / (key + 1) for key in range(NUM_KEYS)}, step)
    journal.close()
    return folder


def mirrored(folder: Path) -> tuple[float, str]:
    """Seconds to send the folder's whole journal, and the id of the run, which is created before the clock starts."""
    mirror = Mirror(folder)
    with mirror._locked():
        run_id = mirror._ensure_run()
    start = time.perf_counter()
    mirror.step()
    return time.perf_counter() - start, run_id


def single_calls(uri: str, experiment_id: str, num_calls: int) -> float:
    """Seconds of `num_calls` calls of `log_metric` on a new run."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    run_id = client.create_run(experiment_id).info.run_id
    start = time.perf_counter()
    for row in range(num_calls):
        client.log_metric(run_id, f"train/metric_{row % NUM_KEYS}", row / 3, step=row // NUM_KEYS)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("num_rows", nargs="?", type=int, default=100_000)
    parser.add_argument("--single", type=int, default=300, help="log_metric calls, half before and half after")
    arguments = parser.parse_args()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import mlflow

    with tempfile.TemporaryDirectory() as root, MlflowServer(Path(root)) as server:
        folder = make_folder(Path(root), server.uri, arguments.num_rows)
        experiment_id = mlflow.MlflowClient(server.uri).create_experiment("mirror_rate")
        single_calls(server.uri, experiment_id, 20)  # warms up client and server
        half = arguments.single // 2
        before = half / single_calls(server.uri, experiment_id, half)
        seconds, run_id = mirrored(folder)
        after = half / single_calls(server.uri, experiment_id, half)
        with sqlite3.connect(server.database) as database:
            [stored] = database.execute("select count(*) from metrics where run_uuid = ?", (run_id,)).fetchone()
    assert stored == arguments.num_rows // NUM_KEYS * NUM_KEYS, f"{stored} rows arrived"
    rate, single = stored / seconds, 2 / (1 / before + 1 / after)
    print(f"mlflow {mlflow.__version__}, python {platform.python_version()}, {os.cpu_count()} CPUs; server: 1 worker,")
    print("SQLite, loopback HTTP; n = 1 for the mirror, 2 series of single calls\n")
    print(f"{'':22}{'rows':>9}{'seconds':>10}{'rows/s':>10}{'ratio':>8}")
    print(f"{'log_metric, a call a row':24}{2 * half:>7}{2 * half / single:>10.1f}{single:>10.1f}{1:>7}x", end="")
    print(f"   (before {before:.1f}, after {after:.1f} rows/s)")
    print(f"{'mirror':22}{stored:>9}{seconds:>10.1f}{rate:>10.0f}{rate / single:>7.0f}x")


if __name__ == "__main__":
    main()
