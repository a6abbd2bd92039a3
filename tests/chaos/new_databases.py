"""The first seconds of a new SQLite database: kills while it is made, and several that make it at once."""

from __future__ import annotations

import itertools
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.chaos import count
from tests.chaos.case import Case, Kind
from tests.chaos.kills import SIGNALS
from tests.support.commands import processes_of

FIRST_SEC = 10.0
FINISH = {"then": "finish", "rows": 20}


@dataclass
class Local:
    """A database beside the runs, without a server."""

    database: Path


def play_kill(case: Case) -> None:
    """Somebody is killed in the first ten seconds; the next launch finds nothing in its way."""
    who, name = case.variant.split(" ")
    uri, store = f"sqlite:///{case.cwd}/mlflow.db", Local(case.cwd / "mlflow.db")
    launcher = case.quick({"then": "finish", "rows": 300, "sec": 0.02}, FINISH, uri=uri)
    if case.rng.random() < 0.7:  # else while it is imported what makes one
        case.wait(lambda: list(case.cwd.glob("*mlflow.db*")), launcher)
    time.sleep(after := case.rng.uniform(0, FIRST_SEC))
    struck = processes_of(case.cwd) if who == "all" else [psutil.Process(launcher.process.pid)]
    for process in struck:
        with suppress(psutil.Error):
            process.send_signal(signal.Signals[name])
    there = sorted(path.name for path in case.cwd.glob("*mlflow.db*"))
    case.tell(f"{name} to {who} after {after:.2f} s; there: {there}")
    launcher.end()
    case.wait_until_gone()
    again = case.quick(FINISH, uri=uri)
    code = again.end()
    case.require(code == 0, f"{case.told}: the next launch ended with {code}: {again.output[-3000:]}")
    case.sync()
    case.compare(store)


def play_many(case: Case) -> None:
    """Several launchers at once in an empty folder, some of them killed."""
    number = int(case.variant.split(" ")[0])
    uri, store = f"sqlite:///{case.cwd}/mlflow.db", Local(case.cwd / "mlflow.db")
    all_of_them = [case.quick(FINISH, uri=uri, WAIT_SEC="120") for _ in range(number)]
    struck = case.rng.sample(all_of_them, case.rng.randint(0, number // 2))
    for launcher in struck:
        time.sleep(case.rng.uniform(0.2, FIRST_SEC / (len(struck) + 1)))
        launcher.process.kill()
    case.tell(f"{number} launchers, {len(struck)} killed")
    for launcher in all_of_them:
        code = launcher.end()
        well = code == 0 or (launcher in struck and code == -signal.SIGKILL)
        case.require(well, f"{case.told}: a launch ended with {code}: {launcher.output[-3000:]}")
    case.wait_until_gone()
    case.sync()
    case.compare(store)
    case.require(len(count.folders(case.cwd)) >= number - len(struck), "a launch left no folder")


FIRST_SECONDS = Kind(
    "first seconds", [" ".join(words) for words in itertools.product(("launcher", "all"), SIGNALS)], play_kill
)
AT_ONCE = Kind("launchers at once", [f"{number} launchers" for number in (2, 3, 5, 8)], play_many)
