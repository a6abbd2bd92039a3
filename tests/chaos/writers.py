"""Writers, mirrors and a server that all fail at random: for as long as it is told, and then everything is counted.

Each folder has two writers, as a run has its worker and its launcher, and one mirror. Faults: those of the proxy; the
server killed and started again; a mirror killed in the middle of anything, its state torn at times, or two at once;
a writer killed, at times within a record; its wall clock stepping forth and back.
"""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.support.faulty_proxy import FAULTS, FaultyProxy
from tests.support.folders import end, make_folder, wait_for
from tests.support.mlflow_server import MlflowServer
from tests.support.rows import Row, as_stored, expected_rows, runs_with_uid, stored_rows
from tracking.jobs.follow.mirror_thread import MirrorThread
from tracking.jobs.follow.sync import sync
from tracking.record import run_folder
from tracking.record.journal import Journal
from tracking.store.mirror.mirror import Mirror

NUM_FOLDERS = 3
NUM_WRITERS = 2  # a folder
MIN_FAULTS, MIN_RECORDS = 12, 1000  # before it ends, however slow the machine is
MEAN_PAUSE_SEC = 0.1  # of a writer after every third record: a slow machine can still upload what they write
KEYS = ("train/loss", "eval/accuracy", "system/cpu", "throughput/samples_per_sec")
ODD = (0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, sys.float_info.max, 2.0**60)
LEDGER = "ledger.{}"  # what a writer knows to be in the journal


@dataclass
class Report:
    seed: int
    rows_written: int = 0
    rows_lost: int = 0
    rows_altered: int = 0  # on the server and in no journal
    duplicates: int = 0  # rows that are there twice, and runs that a folder has beside its own
    faults: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(self.faults.items()))
        return (
            f"rows written {self.rows_written:,}, faults injected {self.faults.total():,}, rows lost {self.rows_lost}, "
            f"duplicates {self.duplicates}, altered {self.rows_altered}; {self.requests:,} requests in "
            f"{self.seconds:.0f} s; seed {self.seed}\n  faults: {kinds}"
        )


# ----------------------------------------------------------------------------------------------- processes to be killed


def write(folder: Path, number: int, seed: int) -> None:
    """Append rows until killed; now and then step the wall clock, or die within a record."""
    rng = random.Random(seed)
    real, offset_ns = time.time_ns, 0
    time.time_ns = lambda: real() + offset_ns
    journal = Journal(folder / run_folder.JOURNAL)
    ledger = os.open(folder / f".{LEDGER.format(number)}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    step = 0
    while True:
        step += rng.randint(0, 2)
        keys = rng.sample(KEYS, rng.randint(1, len(KEYS)))
        values = {
            key: rng.choice(ODD) if rng.random() < 0.1 else rng.gauss(0, 10 ** rng.uniform(-9, 9)) for key in keys
        }
        record = journal.metrics(values, step)
        rows = [[key, as_stored(value), record.time_ms, step, math.isnan(value)] for key, value in values.items()]
        os.write(ledger, (json.dumps(rows) + "\n").encode())
        chance = rng.random()
        if chance < 0.006:
            offset_ns += rng.choice((-3600, -10, -1, 1, 60)) * 10**9
            os.write(ledger, b'"clock stepped"\n')
        elif chance < 0.012:
            line = (json.dumps(vars(record) | {"key": "torn"}) + "\n").encode()
            os.write(ledger, b'"record torn"\n')
            os.write(journal._descriptor, line[: rng.randint(1, len(line) - 1)])
            os.kill(os.getpid(), 9)
        elif chance < 0.3:
            time.sleep(rng.expovariate(1 / MEAN_PAUSE_SEC))


def mirror(folders: list[Path]) -> None:
    """As a launcher does, until killed."""
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "1"  # what hangs shall not take all of the time
    threads = [MirrorThread(folder, interval_sec=0.1).start() for folder in folders]
    while threads:
        time.sleep(1)


# ---------------------------------------------------------------------------------------------------------- the driver


class Chaos:
    def __init__(self, root: Path, server: MlflowServer, proxy: FaultyProxy, seed: int) -> None:
        self.report = Report(seed)
        self._rng = random.Random(seed)
        self._server, self._proxy = server, proxy
        self._folders = [make_folder(root, proxy.uri, f"run{number}") for number in range(NUM_FOLDERS)]
        self._context = multiprocessing.get_context("forkserver")  # what is imported once is forked in no time
        self._context.set_forkserver_preload(
            ["mlflow", "mlflow.tracking.client", "tracking.jobs.follow.sync", __name__]
        )
        self._writers: dict[tuple[Path, int], BaseProcess] = {}
        self._mirrors: list[BaseProcess] = []
        self._restart: threading.Thread | None = None

    def run(self, seconds: float) -> Report:
        self._keep_writers()
        self._mirrors.append(self._start(mirror, self._folders))
        wait_for(lambda: all(Mirror(folder).state.offset for folder in self._folders))
        started = time.monotonic()
        next_restart = started + seconds / 3
        while time.monotonic() < started + seconds or not self._enough():
            self._keep_writers()
            self._strike()
            if time.monotonic() > next_restart and not (self._restart and self._restart.is_alive()):
                next_restart = time.monotonic() + max(60.0, seconds / 3)
                self._restart = threading.Thread(target=self._restart_server)
                self._restart.start()
        self._end()
        self.report.seconds = time.monotonic() - started
        return self.report

    def _enough(self) -> bool:
        num_records = sum((folder / run_folder.JOURNAL).read_bytes().count(b"\n") for folder in self._folders)
        return self.report.faults.total() >= MIN_FAULTS and num_records >= MIN_RECORDS

    def _strike(self) -> None:
        """One fault of those that are the driver's to inject; the writers strike themselves."""
        chance = self._rng.random()
        if chance < 0.6:
            fault = self._rng.choice((*FAULTS, "false acknowledgement"))
            self.report.faults[fault] += 1
            self._proxy.retry_after = self._rng.choice(("", "1"))
            with self._proxy.failing(fault):
                time.sleep(self._rng.uniform(0.05, 0.8))
            time.sleep(self._rng.uniform(0.0, 0.5))
        elif chance < 0.8:
            self._strike_mirrors()
        else:
            self._writers[self._rng.choice(list(self._writers))].kill()
            self.report.faults["writer killed"] += 1

    def _strike_mirrors(self) -> None:
        if len(self._mirrors) == 1 and self._rng.random() < 0.3:
            self.report.faults["two mirrors at once"] += 1
            self._mirrors.append(self._start(mirror, self._folders))
            return
        for process in self._mirrors:
            process.kill()
            process.join()
        self.report.faults["mirror killed"] += len(self._mirrors)
        state = self._rng.choice(self._folders) / run_folder.MIRROR
        if state.exists() and self._rng.random() < 0.3:
            self.report.faults["mirror.json torn"] += 1
            content = state.read_bytes()
            state.write_bytes(content[: self._rng.randint(0, max(0, len(content) - 1))])
        self._mirrors = [self._start(mirror, self._folders)]

    def _restart_server(self) -> None:
        self.report.faults["server killed"] += 1
        self._server.kill()
        self._server.start()

    def _keep_writers(self) -> None:
        for place in itertools.product(self._folders, range(NUM_WRITERS)):
            if place not in self._writers or not self._writers[place].is_alive():
                self._writers[place] = self._start(write, *place, self._rng.randrange(2**32))

    def _start(self, target: Callable[..., None], *arguments: object) -> BaseProcess:
        process = self._context.Process(target=target, args=arguments, daemon=True)
        process.start()
        return process

    def _end(self) -> None:
        """Everything heals, every run ends, and one `sync` has to bring all that is missing."""
        for process in (*self._writers.values(), *self._mirrors):
            process.kill()
            process.join()
        if self._restart:
            self._restart.join()
        self._proxy.fault = None
        for folder in self._folders:
            Journal(folder / run_folder.JOURNAL).close()
            end(folder)
        outcomes = sync(self._folders)
        assert {outcome.state for outcome in outcomes} == {"complete"}, outcomes
        for folder in self._folders:
            self._count(folder)
        self.report.requests = len(self._proxy.times)

    def _count(self, folder: Path) -> None:
        report, shipped = self.report, Mirror(folder)
        stored = stored_rows(self._server, shipped.run_id)
        in_journal = set(expected_rows(folder))
        known: set[Row] = set()
        for path in folder.glob(f".{LEDGER.format('*')}"):
            for line in path.read_text().split("\n")[:-1]:
                content = json.loads(line)
                if isinstance(content, str):
                    report.faults[content] += 1
                else:
                    known |= {tuple(row) for row in content}  # type: ignore[misc]
        report.rows_written += len(in_journal | known)
        report.rows_lost += len((in_journal | known) - set(stored))
        report.rows_altered += len(set(stored) - in_journal)
        runs = [stage for _, stage in runs_with_uid(self._server, shipped.info.uid) if stage == "active"]
        report.duplicates += len(stored) - len(set(stored)) + len(runs) - 1
