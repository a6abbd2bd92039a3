"""One case: a folder of its own, processes that are given a time in which they must end, and what was found wrong."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.chaos import count
from tests.support import commands, quick_launch
from tests.support.commands import TINY, environment, processes_of
from tests.support.faulty_proxy import FaultyProxy
from tests.support.mlflow_server import MlflowServer
from tests.support.rows import Store

LIMIT_SEC = 300.0  # for each process: on a busy machine, the slowest launch takes a fifth of it
GONE_SEC = 30.0  # after a launcher's end, what it started must be gone
# A process that hangs is asked for the stacks of its threads by SIGABRT.
TELLING = {"PYTHONFAULTHANDLER": "1"}
REAL = (
    *TINY, "gpus=0", "cpu_processes=2", "log_every_n_steps=2", "tracking.upload_wait_sec=5",
    "tracking.system_metrics_interval_sec=1", "model.hparams.rest_sec=0.02",
)  # fmt: skip


class Finding(Exception):
    """Something that must not be: lost, doubled, wrong, hanging, or left behind."""


class Skipped(Exception):
    """What this machine lacks for a case."""


class Started:
    """A process under way; its output is read all the time, so that it never waits for a reader."""

    def __init__(self, case: Case, process: subprocess.Popen[str], what: str) -> None:
        self.process, self._case, self._what = process, case, what
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        self._lines.extend(self.process.stdout)

    @property
    def output(self) -> str:
        return "".join(self._lines)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def end(self, limit_sec: float = LIMIT_SEC) -> int:
        """The exit code. Raises Finding, with the stacks, where it has not ended after so long."""
        try:
            self.process.wait(limit_sec)
        except subprocess.TimeoutExpired:
            stacks = self._case.stacks()
            raise Finding(f"{self._what} hangs for {limit_sec:.0f} s: {self.output[-6000:]}\n{stacks}") from None
        self._reader.join(GONE_SEC)
        return self.process.returncode


@dataclass
class Case:
    """A case's choices (`rng`), its folder, and the server that all cases share, behind a proxy that fails."""

    kind: str
    variant: str
    seed: int
    cwd: Path
    server: MlflowServer
    proxy: FaultyProxy
    rows: int = 0  # rows that were compared
    told: list[str] = field(default_factory=list)  # what was done, in the order in which it was

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.kind}/{self.variant}/{self.seed}")
        self._before = count.run_ids(self.server)

    def tell(self, words: str) -> None:
        self.told.append(words)

    def quick(self, *jobs: dict[str, object] | str, uri: str = "", **environ: str) -> Started:
        """The launcher with a worker that needs no torch."""
        process = quick_launch.start(self.cwd, uri or self.proxy.uri, *jobs, **TELLING, **environ)
        return Started(self, process, "the launcher")

    def real(self, *arguments: str, uri: str = "", alone: bool = False, **environ: str) -> Started:
        """launch.py with torchrun and two ranks; what is continued is given `alone`."""
        where = () if alone else (*REAL, f"tracking.uri={uri or self.proxy.uri}")
        process = commands.start(self.cwd, *where, *arguments, max_file_bytes=0, **TELLING, **environ)
        return Started(self, process, "launch.py")

    def start(self, what: str, *command: str, **environ: str) -> Started:
        """A command of Python's."""
        process = subprocess.Popen(
            [sys.executable, *command], cwd=self.cwd, text=True, env=environment(**TELLING, **environ),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return Started(self, process, what)

    def start_sync(self, *words: str, **environ: str) -> Started:
        return self.start("sync", "-m", "tracking", "sync", *(words or ("runs",)), **environ)

    def sync(self, *words: str, **environ: str) -> str:
        """The output of sync if everything is complete. Raises Finding if it is not."""
        self.proxy.fault = None
        started = self.start_sync(*words, **environ)
        code = started.end()
        no_folder = code == 2 and "no run folder" in started.output
        self.require(code == 0 or no_folder, f"sync ended with {code}: {started.output[-3000:]}")
        return started.output

    def wait(self, condition: Callable[[], object], started: Started) -> bool:
        """Whether the condition came true before that process ended."""
        deadline = time.monotonic() + LIMIT_SEC
        while not condition():
            if not started.alive:
                return bool(condition())
            if time.monotonic() > deadline:
                raise Finding(f"nothing happens for {LIMIT_SEC:.0f} s: {started.output[-3000:]}\n{self.stacks()}")
            time.sleep(0.01)
        return True

    def wait_until_gone(self) -> None:
        deadline = time.monotonic() + GONE_SEC
        while left := processes_of(self.cwd):
            if time.monotonic() > deadline:
                words = "; ".join(f"{process.pid} {' '.join(process.cmdline())[-200:]}" for process in left)
                raise Finding(f"left behind after {GONE_SEC:.0f} s: {words}\n{self.stacks()}")
            time.sleep(0.05)

    def require(self, condition: object, words: str) -> None:
        if not condition:
            raise Finding(words)

    def compare(self, store: Store | None = None, folders: list[Path] | None = None, alone: bool = True) -> None:
        """Raises Finding where MLflow does not hold exactly the run folders of this case, and with `alone`, no more."""
        store = store or self.server
        run_folders = count.folders(self.cwd) if folders is None else folders
        wrong = []
        for folder in run_folders:
            rows, words = count.compare(folder, store)
            self.rows += rows
            wrong += [f"{folder.name}: {difference}" for difference in words]
        if alone:
            before = self._before if store is self.server else set()
            wrong += count.strangers(run_folders, store, before)
        self.require(not wrong, "; ".join(wrong))

    def stacks(self) -> str:
        """The stacks of all processes here, which ends them."""
        for process in processes_of(self.cwd):
            with suppress(psutil.Error):
                process.send_signal(signal.SIGABRT)
        time.sleep(2)
        return "\n".join(
            f"{path.relative_to(self.cwd)}: {path.read_text(errors='replace')[-3000:]}"
            for path in self.cwd.rglob("worker.log")
        )

    def close(self) -> None:
        """End the processes of the case."""
        self.proxy.fault, self.proxy.only, self.proxy.retry_after, self.proxy.delay_sec = None, b"", "", 0.0
        for process in processes_of(self.cwd):
            with suppress(psutil.Error):
                process.kill()


@dataclass(frozen=True)
class Kind:
    """A kind of case: `play` does one of its variants and raises Finding or Skipped."""

    name: str
    variants: list[str]
    play: Callable[[Case], None]
    once: str = ""  # a variant that takes minutes, for one time in a program that has half an hour
