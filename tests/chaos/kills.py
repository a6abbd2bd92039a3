"""A signal to each process of a run, in each phase of it."""

from __future__ import annotations

import itertools
import json
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tests.chaos import count
from tests.chaos.case import Case, Kind, Started
from tests.support.commands import events, processes_of
from tests.support.run_processes import servers_in, workers_of
from tracking.record import run_folder

WORKERS = ("supervisor", "fork server", "agent", "rank 0", "rank 1")
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
# By phase: the event that begins it, and for how many seconds of it the signal may come.
PHASES = {
    "imports": ("", 7.0),
    "warm-up": ("init_start", 0.5),
    "training": ("epoch_start", 1.0),
    "evaluation": ("eval_start", 0.05),
    "ending": ("run_stop", 1.0),
    "uploading": ("result", 2.0),
}
SWEEPS = 0.3  # the share of cases in which the signal meets a sweep of two jobs
SLOW_SEC = 0.3  # a request, so that there is time to strike while it uploads
ROWS = {"then": "finish", "rows": 2000}


def victims(name: str, launcher: Started, cwd: Path) -> list[psutil.Process]:
    """The processes of that name, as far as there are any now."""
    processes = []
    with suppress(psutil.Error):
        if name == "everything":
            return processes_of(cwd)
        if name == "launcher":
            return [psutil.Process(launcher.process.pid)]
        if name == "supervisor":
            return [child for child in psutil.Process(launcher.process.pid).children() if "-P" in child.cmdline()]
        if name == "fork server":
            return servers_in(cwd)
        agents = [worker for folder in count.folders(cwd) for worker in workers_of(folder, cwd)]
        if name == "agent":
            return agents
        ranks = sorted((rank for agent in agents for rank in agent.children()), key=lambda rank: rank.create_time())
        processes = ranks[int(name[-1]) : int(name[-1]) + 1]
    return processes


def in_phase(cwd: Path, phase: str) -> Callable[[], object]:
    """Whether a run here has come to a phase."""
    event = PHASES[phase][0]

    def check() -> bool:
        for folder in count.folders(cwd):
            if event == "result" and (folder / run_folder.RESULT).exists():
                return True
            if event != "result" and (folder / run_folder.CONFIG).exists() and events(folder, event):
                return True
        return False

    return check


def play(case: Case) -> None:
    """One signal to one process of a real run; its status must tell of it, and `sync` must bring the rest."""
    *words, name, phase = case.variant.split(" ")
    victim, after = " ".join(words), case.rng.uniform(0, PHASES[phase][1])
    if phase == "uploading":
        case.proxy.delay_sec, case.proxy.fault = SLOW_SEC, "slow"
    seeds = ["-m", "seed=1,2"] if case.rng.random() < SWEEPS else [f"seed={case.rng.randint(1, 9)}"]
    launcher = case.real(*seeds)
    if PHASES[phase][0]:
        case.wait(in_phase(case.cwd, phase), launcher)
    time.sleep(after)
    struck = victims(victim, launcher, case.cwd)
    for process in struck:
        with suppress(psutil.Error):
            process.send_signal(signal.Signals[name])
    case.tell(f"{name} to {len(struck)} processes, {after:.2f} s into {phase}{' of a sweep' if seeds[1:] else ''}")
    trained = all(events(folder, "run_stop") for folder in count.folders(case.cwd)) and phase in ("ending", "uploading")
    code = launcher.end()
    case.wait_until_gone()
    case.sync()
    case.compare()
    check_honest(case, code, bool(struck), trained)


def check_honest(case: Case, code: int, struck: bool, trained: bool) -> None:
    """A run that a signal met before its end was killed, one that finished has trained to its end."""
    for folder in count.folders(case.cwd):
        result = json.loads((folder / run_folder.RESULT).read_text())
        status, kind = result["status"], (result["failure"] or {}).get("kind", "")
        words = f"{case.told}: {status} {kind}, exit code {code}: {result['failure']}"
        if (folder / run_folder.CONFIG).exists():  # a sweep fails with one of its jobs
            case.require(status != "finished" or events(folder, "run_stop"), f"finished without an end: {words}")
            case.require(status != "failed", f"failed by itself: {words}")
        case.require(status != "killed" or (struck and kind.startswith("signal:")), f"killed by nobody: {words}")
        case.require(code != 0 or status == "finished", f"a launch that went well: {words}")
        case.require(struck or trained or status == "finished", f"nobody struck: {words}")


def play_sync(case: Case) -> None:
    """A `sync` is told to end in the middle of its upload; the next one does the rest."""
    case.proxy.fault = "refuse"
    launcher = case.quick(ROWS, {"then": "finish"}, WAIT_SEC="0")
    case.wait(lambda: len(count.folders(case.cwd)) == 3, launcher)
    (count.folders(case.cwd)[1] / "large.bin").write_bytes(case.rng.randbytes(2**21))
    launcher.end()
    name = case.variant.split(" ")[-1]
    for _ in range(case.rng.randint(1, 2)):
        requests = len(case.proxy.times)
        case.proxy.delay_sec, case.proxy.fault = 0.1, "slow"
        sync = case.start_sync()
        case.wait(lambda requests=requests: len(case.proxy.times) > requests, sync)
        time.sleep(after := case.rng.uniform(0, 5))
        if sync.alive:
            sync.process.send_signal(signal.Signals[name])
        case.tell(f"{name} to sync {after:.2f} s after its first request")
        sync.end()
    case.wait_until_gone()
    case.sync()
    case.compare()


def variants(names: Sequence[str], phases: Iterable[str]) -> list[str]:
    return [" ".join(words) for words in itertools.product(names, SIGNALS, phases)]


# Only the launcher is there while it uploads. A kind for each, so that each comes in every turn.
LAUNCHER_KILLS = Kind("kill of the launcher", variants(["launcher"], PHASES), play)
ALL_KILLS = Kind("kill of everything", variants(["everything"], PHASES), play)
WORKER_KILLS = Kind("kill of the worker", variants(WORKERS, [name for name in PHASES if name != "uploading"]), play)
SYNC_KILLS = Kind("kill of sync", list(SIGNALS), play_sync)
