"""Runs commands one after the other, in calls of some minutes that go on where the last one stopped.

For machines that are there for minutes at a time. What each command printed is in a file of the folder `out`, beside
the sweeps' folders with their reports. A sweep that a call's end cuts short is resumed by the next one; a command that
fails does not stop the others.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tracking.environment import nvml

ROOT = Path(__file__).resolve().parents[2]
Commands = Iterable[tuple[str, str]]  # the name of each, and its words behind `python`
LAUNCH = f"{ROOT / 'launch.py'}"
EIGHT = list(range(8))
LEAST_SEC = 60.0  # With less of a call's time left no command is begun.
STOP_SEC = 30.0  # what a launcher has to stop its job, and to write what there is


def sweep(name: str, overrides: str) -> str:
    return f"{LAUNCH} -m tracking.offline=true {overrides} runs_dir=runs-{name}"


def main(about: str, commands: Callable[[list[int]], Commands], default: str) -> int:
    """`commands` are those of a machine with GPUs of these indices. 0 when all is done, also where a command failed, as
    is printed; 1 when another call has to go on."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(default))
    parser.add_argument("--minutes", type=float, default=10.0, help="how long a call may take")
    parser.add_argument("--dry-run", action="store_true", help="print the commands for eight GPUs, and run none")
    arguments = parser.parse_args()
    if arguments.dry_run:
        for name, words in commands(EIGHT):
            print(f"{name}: python {words}")
        return 0
    indices = [gpu.index for gpu in nvml.visible_gpus()]
    if not indices:
        parser.error("no NVIDIA GPU is visible here; --dry-run prints what would be run")
    arguments.out.mkdir(parents=True, exist_ok=True)
    return measure(commands(indices), arguments.out, time.monotonic() + 60 * arguments.minutes)


def measure(commands: Commands, out: Path, until: float) -> int:
    for name, words in commands:
        done = out / f"{name}.done"
        if done.exists():
            continue
        left_sec = until - time.monotonic() - STOP_SEC
        code = run(name, words, out, left_sec) if left_sec > LEAST_SEC else None
        if code is None:
            print(f"{name}: to be gone on with; call this again")
            return 1
        done.write_text(f"{code}\n", encoding="utf-8")
        print(f"{name}: exit code {code}; {out / f'{name}.txt'}", flush=True)
    print("all is done")
    return 0


def run(name: str, words: str, out: Path, limit_sec: float) -> int | None:
    """The exit code; None where the time was up, and the command was told to stop."""
    # Where Python may keep no bytecode, each process would compile torch's sources anew, for six seconds and more.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(out.resolve() / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    printed = out / f"{name}.txt"
    command = [sys.executable, *shlex.split(continued(name, words, printed))]
    with printed.open("a", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=out, stdout=file, stderr=subprocess.STDOUT, env=environment)
        try:
            return process.wait(limit_sec)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            return None


def continued(name: str, words: str, printed: Path) -> str:
    """Of a sweep that was cut short, the words that resume it."""
    cut = re.findall(r"sweep\.resume=(\S+)", printed.read_text(encoding="utf-8")) if printed.exists() else []
    return f"{LAUNCH} sweep.resume={cut[-1]} tracking.offline=true runs_dir=runs-{name}" if cut else words
