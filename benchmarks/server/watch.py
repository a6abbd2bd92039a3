"""Lag, memory and CPU time of a team's server and its senders while it is loaded."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import psutil
import psycopg

from tests.support.team_server import TeamServer


class Database:
    """Queries to the server's PostgreSQL."""

    def __init__(self, server: TeamServer) -> None:
        os.environ["PGPASSFILE"] = str(server.home / "pgpass")
        uri = f"host={server.home}/database/socket user=mlflow dbname=tracking"
        self._connection = psycopg.connect(uri, autocommit=True)

    def rows(self, run_ids: list[str]) -> int:
        [count] = self._one("SELECT count(*) FROM metrics WHERE run_uuid = ANY(%s)", run_ids)
        return int(count)

    def newest_ms(self, run_ids: list[str]) -> dict[str, int]:
        """Time (ms) up to which the server has rows of every key, by run id."""
        sql = "SELECT run_uuid, min(timestamp) FROM latest_metrics WHERE run_uuid = ANY(%s) GROUP BY 1"
        return dict(self._connection.execute(sql, (run_ids,)).fetchall())

    def bytes_per_row(self) -> float:
        total, count = self._one("SELECT pg_total_relation_size('metrics'), count(*) FROM metrics")
        return float(total) / count

    def _one(self, sql: str, *arguments: object) -> tuple[Any, ...]:
        row = self._connection.execute(sql, arguments).fetchone()
        assert row is not None
        return row


class Watch(threading.Thread):
    """Samples the lag and the memory twice a second, and sums up CPU time from start to stop."""

    def __init__(self, server: TeamServer, run_ids: list[str], senders: list[int]) -> None:
        super().__init__(daemon=True)
        self._database = Database(server)
        self._run_ids = run_ids
        self._roots = {"senders": senders, **server_processes(server)}
        self._ended = threading.Event()
        self.lag_sec = 0.0
        self.memory_mb: dict[str, float] = {}
        self._before = self._cpu_sec()
        self.cpu_sec: dict[str, float] = {}

    def run(self) -> None:
        started = time.time()
        while not self._ended.wait(0.5):
            now = time.time()
            newest = self._database.newest_ms(self._run_ids)
            for run_id in self._run_ids:
                behind = now - newest[run_id] / 1e3 if run_id in newest else now - started
                self.lag_sec = max(self.lag_sec, behind)
            for name, pids in self._roots.items():
                memory = sum(memory_mb(process) for process in processes(pids))
                self.memory_mb[name] = max(memory, self.memory_mb.get(name, 0.0))

    def stop(self) -> None:
        self._ended.set()
        self.join()
        self.cpu_sec = {name: after - self._before[name] for name, after in self._cpu_sec().items()}

    def _cpu_sec(self) -> dict[str, float]:
        """CPU seconds by group, of its running processes and their ended children."""
        times = psutil.cpu_times()
        used_sec = {name: sum(map(cpu_sec, processes(pids))) for name, pids in self._roots.items()}
        return used_sec | {"all": sum(times) - times.idle - times.iowait - times.guest - times.guest_nice}


def processes(pids: list[int]) -> list[psutil.Process]:
    tree = []
    for pid in pids:
        process = psutil.Process(pid)
        tree += [process, *process.children(recursive=True)]
    return tree


def server_processes(server: TeamServer) -> dict[str, list[int]]:
    """Process id of each service's main process."""
    files = {"MLflow": "sockets/mlflow.pid", "nginx": "nginx/group.pid", "PostgreSQL": "database/data/postmaster.pid"}
    return {name: [int((server.home / file).read_text().split()[0])] for name, file in files.items()}


def cpu_sec(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def memory_mb(process: psutil.Process) -> float:
    """Proportional set size (PSS) in MB: memory shared by several processes counts once in their sum."""
    try:
        return float(process.memory_full_info().pss) / 1e6
    except psutil.Error:
        return 0.0
