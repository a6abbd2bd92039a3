"""A program (model=program) and a script with a context manager: a signal to each of their processes."""

from __future__ import annotations

import itertools
import json
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.chaos import count
from tests.chaos.case import Case, Kind, Started
from tests.chaos.kills import SIGNALS
from tests.support.commands import events, processes_of
from tracking.record import run_folder

PROGRAM = """
import json, sys, time

def log(key, value=None, **metadata):
    line = {"namespace": "", "time_ms": int(time.time() * 1e3), "event_type": "POINT_IN_TIME", "key": key,
            "value": value, "metadata": metadata}
    print(":::MLLOG", json.dumps(line), flush=True)

log("train_samples", 500)
log("global_batch_size", 50)
log("run_start")
for epoch in range(1, 21):
    log("epoch_start", epoch_num=epoch)
    time.sleep(0.1)
    log("epoch_stop", epoch_num=epoch)
    log("eval_accuracy", epoch / 20, epoch_num=epoch)
log("run_stop", status="success")
"""
SCRIPT = """
import sys, time
from tracking.lightning import time_trial

with time_trial({"accuracy": 0.9}, uri=sys.argv[1], device="cpu", batch_size=8, log_every_n_steps=2,
                system_metrics_interval_sec=1) as trial:
    for epoch in range(1, 21):
        for step in range(10):
            time.sleep(0.01)
            trial.step(8, 1 / epoch)
        with trial.evaluation():
            trial.evaluate({"accuracy": epoch / 40}, epoch=epoch)
"""
PHASES = {"imports": "", "warm-up": "init_start", "training": "epoch_start", "ending": "run_stop"}
OF_PROGRAM = {"launcher": "launch.py", "worker": "tracking.jobs.program.worker", "program": "program.py"}
OF_SCRIPT = {"script": "script.py", "companion": "tracking.jobs.follow.companion"}


def play_program(case: Case) -> None:
    (case.cwd / "program.py").write_text(PROGRAM)
    command = f"program.command='{sys.executable} program.py'"
    options = ("model=program", command, "gpus=0", "target=0.95", "tracking.upload_wait_sec=5")
    launcher = case.real(*options, f"tracking.uri={case.proxy.uri}", alone=True)
    strike(case, launcher, OF_PROGRAM)
    launcher.end()
    conclude(case)


def play_script(case: Case) -> None:
    (case.cwd / "script.py").write_text(SCRIPT)
    script = case.start("the script", "script.py", case.proxy.uri)
    strike(case, script, OF_SCRIPT)
    script.end()
    conclude(case)


def strike(case: Case, started: Started, names: dict[str, str]) -> None:
    victim, name, phase = case.variant.split(" ")
    if key := PHASES[phase]:
        case.wait(lambda: any(events(folder, key) for folder in journaled(case.cwd)), started)
    time.sleep(after := case.rng.uniform(0, 1.0 if key else 6.0))
    struck = [process for process in processes_of(case.cwd) if victim == "everything" or is_of(process, names[victim])]
    for process in struck:
        with suppress(psutil.Error):
            process.send_signal(signal.Signals[name])
    case.tell(f"{name} to {len(struck)} processes, {after:.2f} s into {phase}")


def journaled(cwd: Path) -> list[Path]:
    return [folder for folder in count.folders(cwd) if (folder / run_folder.JOURNAL).exists()]


def is_of(process: psutil.Process, word: str) -> bool:
    try:
        return any(part.endswith(word) for part in process.cmdline()[:4])
    except psutil.Error:
        return False


def conclude(case: Case) -> None:
    """Its processes have ended, MLflow has everything, and a finished run has trained to its end."""
    case.wait_until_gone()
    case.sync()
    case.compare()
    for folder in count.folders(case.cwd):
        result = json.loads((folder / run_folder.RESULT).read_text())
        if result["status"] == "finished":
            case.require(events(folder, "run_stop"), f"finished without an end: {case.told}")
        else:
            case.require(result["failure"]["kind"].startswith("signal:"), f"{case.told}: {result['failure']}")


def kind(name: str, names: dict[str, str], play: object) -> Kind:
    victims = (*names, "everything")
    return Kind(name, [" ".join(words) for words in itertools.product(victims, SIGNALS, PHASES)], play)  # type: ignore[arg-type]


PROGRAM_KILLS = kind("kill of a program's", OF_PROGRAM, play_program)
SCRIPT_KILLS = kind("kill of a script's", OF_SCRIPT, play_script)
