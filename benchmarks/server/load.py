"""Load a team's server with 32 runs of 100 metric rows a second each, then with 100,000 rows at once.

    python benchmarks/server/load.py [--seconds 120] [--csv FILE]       # --seconds 10 --compare-seconds 5 to try it out

The benchmark starts the native server of docs/server.md (PostgreSQL, MLflow with users, nginx with TLS) on this
machine, so server and senders share the cores. Senders are processes, forked after MLflow is imported:

    mirror    one process writes the journals of all runs; each run has a process with its mirror, as in a launcher
    plain     each row is a call of MlflowClient.log_metric
    async     the same with synchronous=False, and mlflow.flush_async_logging() at the end
    async, buffered    the same with MLFLOW_ASYNC_LOGGING_BUFFERING_SECONDS=1

A run's lag is the age of its newest row on the server. PostgreSQL is queried for it twice a second, and the longest lag
of any run is reported. Rows that are not in the database when the senders have ended count as missing. A sender that
is still running a set time after the load is killed.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.server.senders import FORK, NUM_KEYS, call_run, forked, mirror_run, row_values, write_journals
from benchmarks.server.watch import Database, Watch
from tests.support.team_server import TeamServer
from tracking.record import Journal, documents, run_folder
from tracking.store.server import ENVIRONMENT

EXPERIMENT = "server_load"


@dataclass
class Load:
    name: str
    num_runs: int
    sent: int  # rows due
    seconds: float
    on_server_at_end: int  # rows stored when the load ends
    on_server: int  # rows stored when all senders have ended
    lag_sec: float  # the longest of any run during the load
    finish_sec: float  # from the end of the load to the end of all senders
    sender_cpu: float  # cores of all senders
    server_cpu: float  # cores of MLflow, PostgreSQL and nginx
    other_cpu: float  # cores of all other processes
    memory_mb: dict[str, float] = field(default_factory=dict)

    @property
    def rows_per_sec(self) -> float:
        return self.on_server_at_end / self.seconds


def measure(
    name: str, server: TeamServer, run_ids: list[str], sent: int, seconds: float,
    calls: list[tuple[Callable[..., None], tuple[Any, ...]]], patience_sec: float = 600,
) -> Load:  # fmt: skip
    """Figures of these calls, which send during the first `seconds`."""
    database = Database(server)
    started = time.monotonic()
    with forked(calls, patience_sec) as pids:
        watch = Watch(server, run_ids, pids)
        watch.start()
        time.sleep(seconds)
        at_end = database.rows(run_ids)
        watch.stop()
        elapsed = time.monotonic() - started
    finish = time.monotonic() - started - elapsed
    cpu = {group: used / elapsed for group, used in watch.cpu_sec.items()}
    senders, everything = cpu.pop("senders"), cpu.pop("all")
    servers = sum(cpu.values())
    return Load(
        name, len(run_ids), sent, elapsed, at_end, database.rows(run_ids), watch.lag_sec, finish, senders, servers,
        everything - senders - servers, watch.memory_mb,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- phases


def make_folders(root: Path, uri: str, number: int) -> tuple[list[Path], list[str]]:
    """Run folders, and the ids of their runs, created before the clock starts."""
    from tracking.store.mirror import Mirror

    folders, run_ids = [], []
    for index in range(number):
        folder = run_folder.create(root, f"run{index}")
        documents.write_json(folder / run_folder.RUN, run_folder.RunInfo(f"run{index}", EXPERIMENT, uri))
        mirror = Mirror(folder, uri)
        mirror.step()
        assert mirror.run_id
        folders.append(folder)
        run_ids.append(mirror.run_id)
    return folders, run_ids


def mirrored(name: str, server: TeamServer, number: int, rows_per_sec: float, seconds: float) -> Load:
    with tempfile.TemporaryDirectory() as root:
        folders, run_ids = make_folders(Path(root), server.uri, number)
        writing = FORK.Process(target=write_journals, args=(folders, rows_per_sec, seconds))
        writing.start()
        calls = [(mirror_run, (folder, server.uri)) for folder in folders]
        load = measure(name, server, run_ids, int(rows_per_sec * seconds) * number, seconds, calls)
        writing.join()
    return load


@dataclass
class Burst:
    num_runs: int
    rows: int
    seconds: float
    on_server: int


def burst(server: TeamServer, num_runs: int, num_rows: int) -> Burst:
    """Time that mirrors take to send finished journals, which hold `num_rows` rows together."""
    with tempfile.TemporaryDirectory() as root:
        folders, run_ids = make_folders(Path(root), server.uri, num_runs)
        steps = num_rows // NUM_KEYS // num_runs
        for folder in folders:
            journal = Journal(folder / run_folder.JOURNAL)
            for step in range(steps):
                journal.metrics(row_values(step), step)
            journal.close()
            documents.write_json(folder / run_folder.RESULT, run_folder.Result("finished"))
        started = time.monotonic()
        with forked([(mirror_run, (folder, server.uri)) for folder in folders]):
            pass
        seconds = time.monotonic() - started
        return Burst(num_runs, steps * NUM_KEYS * num_runs, seconds, Database(server).rows(run_ids))


def called(
    name: str, server: TeamServer, number: int, rows_per_sec: float, seconds: float, patience_sec: float
) -> Load:
    import mlflow

    client = mlflow.MlflowClient(server.uri)
    experiment_id = client.create_experiment(EXPERIMENT)
    run_ids = [client.create_run(experiment_id).info.run_id for _ in range(number)]
    arguments = [(run_id, server.uri, rows_per_sec, seconds, name) for run_id in run_ids]
    calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = [(call_run, parameters) for parameters in arguments]
    sent = int(rows_per_sec * seconds) * number
    return measure(name, server, run_ids, sent, seconds, calls, patience_sec)


def report(loads: list[Load], bursts: list[Burst], bytes_per_row: float) -> None:
    import mlflow

    versions = f"mlflow {mlflow.__version__}, python {platform.python_version()}"
    print(f"{versions}, {os.cpu_count()} CPUs for senders and server; n = 1\n")
    heads = ("", "runs", "rows sent", "rows/s", "slowest lag", "missing", "catch-up", "senders", "server", "others")
    print("{:22}{:>5}{:>11}{:>8}{:>13}{:>9}{:>12}{:>10}{:>10}{:>10}  cores".format(*heads))
    for load in loads:
        missing = load.sent - load.on_server
        print(
            f"{load.name:22}{load.num_runs:>5}{load.sent:>11}{load.rows_per_sec:>8.0f}"
            f"{load.lag_sec:>11.1f} s{missing:>9}{load.finish_sec:>10.1f} s"
            f"{load.sender_cpu:>10.2f}{load.server_cpu:>10.2f}{load.other_cpu:>10.2f}"
        )
    for fast in bursts:
        rate = fast.rows / fast.seconds
        print(f"{'burst, mirror':22}{fast.num_runs:>5}{fast.rows:>11}{rate:>8.0f}   in {fast.seconds:.1f} s")
    for load in loads:
        memory = ", ".join(f"{group} {mb:.0f} MB" for group, mb in load.memory_mb.items())
        print(f"memory, {load.name}: {memory}")
    print(f"{bytes_per_row:.0f} bytes a metric row in PostgreSQL, indexes included")


def save(path: Path, loads: list[Load], bursts: list[Burst]) -> None:
    names = (
        "phase", "runs", "rows_sent", "seconds", "rows_at_end", "rows_missing", "slowest_lag_sec", "afterwards_sec",
        "sender_cores", "server_cores", "other_cores", "senders_mb", "mlflow_mb", "postgresql_mb",
    )  # fmt: skip
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for load in loads:
            memory = (load.memory_mb[group] for group in ("senders", "MLflow", "PostgreSQL"))
            figures = (load.seconds, load.on_server_at_end, load.sent - load.on_server, load.lag_sec,
                       load.finish_sec, load.sender_cpu, load.server_cpu, load.other_cpu,
                       *memory)  # fmt: skip
            writer.writerow([load.name, load.num_runs, load.sent, *(f"{figure:.6g}" for figure in figures)])
        for burst in bursts:
            row = ("burst", burst.num_runs, burst.rows, f"{burst.seconds:.6g}", burst.on_server, 0)
            writer.writerow(row)


@contextmanager
def serving() -> Iterator[TeamServer]:
    with TeamServer() as server:
        os.environ.update(server.credentials())
        yield server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=32)
    parser.add_argument("--rows-per-sec", type=float, default=100, help="rows of each run")
    parser.add_argument("--seconds", type=float, default=120, help="length of the steady load by mirrors")
    parser.add_argument("--compare-seconds", type=float, default=60, help="length of the load by MLflow's calls")
    parser.add_argument("--patience-seconds", type=float, default=60, help="time for its senders to end")
    parser.add_argument("--burst", type=int, default=100_000, help="rows sent at once")
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # Otherwise the server would keep running.
    load = (arguments.runs, arguments.rows_per_sec)
    with serving() as server:
        loads = [
            mirrored("mirror", server, *load, arguments.seconds),
            mirrored("mirror, one fast run", server, 1, 1000, min(60, arguments.seconds)),
        ]
        bursts = [burst(server, number, arguments.burst) for number in (1, arguments.runs)]
        bytes_per_row = Database(server).bytes_per_row()
    for name in ("plain", "async", "async, buffered"):
        with serving() as server:  # A new server: a killed sender leaves requests behind.
            loads.append(called(name, server, *load, arguments.compare_seconds, arguments.patience_seconds))
    assert all(fast.on_server == fast.rows for fast in bursts), bursts
    report(loads, bursts, bytes_per_row)
    if arguments.csv:
        save(arguments.csv, loads, bursts)


if __name__ == "__main__":
    main()
