"""Jobs side by side: their launcher dies at each moment of a start, or a signal meets one of their processes.

Afterwards, and at times at once, the sweep is resumed: in the end each job has finished once, and was never run twice.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import psutil

from tests.chaos import count
from tests.chaos.case import REAL, Case, Kind, Skipped, Started
from tests.chaos.kills import PHASES, SIGNALS, in_phase
from tests.support import dying_launch
from tests.support.commands import processes_of
from tests.support.run_processes import workers_of
from tracking.record import journal, run_folder

AT_ONCE = ("cpu_processes=1", "sweep.jobs_at_once=2", "max_epochs=2")
VICTIMS = ("supervisor", "agent")
SUPERVISOR = "tracking.jobs.node.__main__"


def play_start(case: Case) -> None:
    name, _, moment = case.variant.partition(" ")
    arguments = ("-m", *REAL, *AT_ONCE, "seed=1,2", f"tracking.uri={case.proxy.uri}")
    need_cores()
    launcher = case.start("launch.py", "-m", dying_launch.__name__, name, moment, *arguments)
    code = launcher.end()
    case.require(code in (1, -signal.SIGKILL), f"it has not died of it: {code} {launcher.output[-3000:]}")
    case.require("Traceback" not in launcher.output, launcher.output[-3000:])
    if case.rng.random() < 0.5:
        case.wait_until_gone()
        case.sync()
        case.compare()
        statuses = {result["status"] for result in results(case.cwd).values()}
        case.require("finished" not in statuses, f"nothing was finished: {statuses}")
    resume(case, launcher)


def play_kill(case: Case) -> None:
    need_cores()
    *words, name, phase = case.variant.split(" ")
    launcher = case.real("-m", "seed=1,2,3", *AT_ONCE)
    if PHASES[phase][0]:
        case.wait(in_phase(case.cwd, phase), launcher)
    time.sleep(after := case.rng.uniform(0, PHASES[phase][1]))
    struck = victims(" ".join(words), launcher, case.cwd)
    for process in struck:
        with suppress(psutil.Error):
            process.send_signal(signal.Signals[name])
    case.tell(f"{name} to {len(struck)} processes, {after:.2f} s into {phase}")
    launcher.end()
    resume(case, launcher)


def need_cores() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        raise Skipped("it takes two cores to be side by side")


def victims(name: str, launcher: Started, cwd: Path) -> list[psutil.Process]:
    if name == "everything":
        return processes_of(cwd)
    with suppress(psutil.Error):
        own = psutil.Process(launcher.process.pid)
        if name == "launcher":
            return [own]
        if name == "agent":
            return [worker for folder in count.folders(cwd) for worker in workers_of(folder, cwd)][:1]
        return [child for child in own.children() if SUPERVISOR in child.cmdline()][:1]
    return []


def resume(case: Case, launcher: Started) -> None:
    """Go on with the sweep, if there is one by now, at once or in a while; each job then has finished once."""
    time.sleep(case.rng.choice((0.0, 0.0, 1.0, 6.0)))
    sweeps = [folder for folder in count.folders(case.cwd) if (folder / "sweep.json").exists()]
    if sweeps and any(result["status"] != "finished" for result in results(case.cwd, sweeps).values()):
        again = case.real(f"sweep.resume={sweeps[0].name}", "sweep.jobs_at_once=2", alone=True)
        code = again.end()
        case.require(code == 0, f"the resumed sweep ended with {code}: {again.output[-3000:]}")
    case.wait_until_gone()
    case.sync()
    case.compare()
    check_once(case, sweeps)
    left = [path.name for path in case.cwd.rglob("*.tmp")]
    case.require(not left, f"left half written: {left}; {launcher.output[-1000:]}")


def results(cwd: Path, folders: list[Path] | None = None) -> dict[Path, dict[str, str]]:
    """The statuses by folder; an empty one if a folder has no status yet."""
    paths = [folder / run_folder.RESULT for folder in (count.folders(cwd) if folders is None else folders)]
    return {path.parent: json.loads(path.read_text()) if path.exists() else {"status": ""} for path in paths}


def check_once(case: Case, sweeps: list[Path]) -> None:
    """Each job of a sweep has finished once, and none was run by two at the same time."""
    times: dict[str, list[tuple[int, int]]] = defaultdict(list)
    num_finished: dict[str, int] = defaultdict(int)
    for folder, result in results(case.cwd).items():
        if (folder / run_folder.CONFIG).exists():
            job = run_folder.read_config(folder).config_hash()
            records = [record.time_ms for record, _ in journal.read(folder / run_folder.JOURNAL)]
            times[job].append((run_folder.read_info(folder).created_ms, max(records, default=0)))
            num_finished[job] += result["status"] == "finished"
    jobs = [json.loads((sweep / "sweep.json").read_text())["jobs"] for sweep in sweeps]
    case.require(len(num_finished) == sum(map(len, jobs)), f"{len(num_finished)} of {jobs} have run")
    case.require(set(num_finished.values()) <= {1}, f"not each has finished once: {dict(num_finished)}")
    for spans in times.values():
        for (_, ended), (began, _) in itertools.pairwise(sorted(spans)):
            case.require(began >= ended, f"run by two at the same time: {sorted(spans)}")


STARTS = Kind(
    "death in a start, side by side",
    [" ".join(words) for words in itertools.product(("SIGKILL", "SIGINT"), dying_launch.MOMENTS)],
    play_start,
)
KILLS = Kind(
    "kill, side by side",
    [" ".join(words) for words in itertools.product(("launcher", *VICTIMS, "everything"), SIGNALS, [*PHASES][:-1])],
    play_kill,
)
