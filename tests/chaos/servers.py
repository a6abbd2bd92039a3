"""Every way in which a server fails, for the rows, the files or both, while a run is under way or at its end."""

from __future__ import annotations

import itertools
import time

from tests.chaos import count
from tests.chaos.case import Case, Finding, Kind, Started
from tests.support.faulty_proxy import FAULTS
from tracking.record import run_folder

ALL_FAULTS = (*FAULTS, "false acknowledgement", "status 413", "status 401", "slow")
SCOPES = {"rows": b"/api/2.0/mlflow/", "files": b"/mlflow-artifacts/", "all": b""}
MANY = 10**6  # requests: a spell that does not end by itself
LARGE = 3 * 2**20  # bytes of the largest file that a run leaves


def play(case: Case) -> None:
    """Spells of one fault, some of them until the launcher has given up."""
    words, _, scope = case.variant.rpartition(" ")
    case.proxy.only = SCOPES[scope]
    jobs: list[dict[str, object]] = [
        {"then": "finish", "rows": case.rng.randint(1, 600), "sec": case.rng.choice((0.0, 0.01))}
        for _ in range(case.rng.randint(1, 2))
    ]
    launcher = case.quick(*jobs, WAIT_SEC=str(case.rng.choice((0, 5, 5, 20))))
    case.wait(lambda: count.folders(case.cwd), launcher)
    name = case.rng.choice(("worker-made.bin", "with a space.csv", "ü.txt"))
    (count.folders(case.cwd)[-1] / name).write_bytes(case.rng.randbytes(case.rng.choice((0, 10, LARGE))))
    strike(case, launcher, words)
    launcher.end()
    case.wait_until_gone()
    case.sync()
    if case.rng.random() < 0.25:
        case.sync()
    case.compare()
    check_rows(case, jobs)


def strike(case: Case, launcher: Started, fault: str) -> None:
    """One to three spells, each until it has met some requests; the last may stay until the launcher has given up."""
    moment = case.rng.random()
    if moment < 0.3:
        case.wait(lambda: case.proxy.times, launcher)
    elif moment < 0.6:
        case.wait(lambda: any((folder / run_folder.RESULT).exists() for folder in count.folders(case.cwd)), launcher)
    for spell in range(case.rng.randint(1, 3)):
        met, number = case.proxy.counts[fault], case.rng.choice((1, 1, 2, 5, MANY))
        case.proxy.retry_after = case.rng.choice(("", "1"))
        case.proxy.delay_sec = case.rng.uniform(0.2, 2)
        with case.proxy.failing(fault):
            if fault == "refuse":  # nobody counts what does not arrive
                time.sleep(case.rng.uniform(0.5, 4))
            else:
                case.wait(lambda met=met, number=number: case.proxy.counts[fault] >= met + number, launcher)
        to_the_end = "" if launcher.alive else ", to the end"
        case.tell(f"spell {spell}: {case.proxy.counts[fault] - met} requests{to_the_end}")
        time.sleep(case.rng.choice((0.0, 0.1, 1.0)))
        if not launcher.alive:
            break


def play_restart(case: Case) -> None:
    """The server itself is killed and started again in the middle of a run."""
    launcher = case.quick({"then": "finish", "rows": 400, "sec": 0.02}, WAIT_SEC="60")
    case.wait(lambda: count.folders(case.cwd), launcher)
    time.sleep(case.rng.uniform(0, 6))
    case.server.kill()
    try:
        time.sleep(case.rng.uniform(0, 3))
    finally:
        case.server.start()
    launcher.end()
    case.wait_until_gone()
    case.sync()
    case.compare()


def check_rows(case: Case, jobs: list[dict[str, object]]) -> None:
    """The worker wrote what it was told to: what the server did was no hindrance to it."""
    there = sorted(
        sum(key == "train/loss" for key, *_ in count.journal_of(folder))
        for folder in count.folders(case.cwd)
        if (folder / run_folder.CONFIG).exists()
    )
    wanted = sorted(int(str(job["rows"])) for job in jobs)
    if there != wanted:
        raise Finding(f"the workers have written {there} rows, not {wanted}")


SERVER = Kind("server fault", [" ".join(words) for words in itertools.product(ALL_FAULTS, SCOPES)], play)
RESTART = Kind("server killed", ["in mid-run"], play_restart)
