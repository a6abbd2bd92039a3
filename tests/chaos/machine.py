"""Faults of a machine: a full disk, and a clock that is set."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.chaos import count
from tests.chaos.case import Case, Kind, Skipped, Started
from tests.support.quick_worker import fill
from tracking.record import run_folder

DISK = "5m"
SOURCE = Path(__file__).with_name("wall_clock.c")
JUMPS_SEC = (-30 * 3600, -5 * 3600, -3661, -2, 3, 3599, 6 * 3600, 40 * 3600)


def play_disk(case: Case) -> None:
    """The disk of runs_dir is filled in mid-run, and has room again later."""
    runs = case.cwd / "runs"
    runs.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(runs)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skipped(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        fill_and_free(case, runs / "filler")
        case.compare()
    except BaseException:
        shutil.copytree(runs, case.cwd / "runs-kept", symlinks=True)
        raise
    finally:
        case.close()
        subprocess.run(["umount", "--lazy", str(runs)], check=True)


def fill_and_free(case: Case, filler: Path) -> None:
    jobs: list[dict[str, object]] = [{"then": "finish", "rows": 400, "sec": 0.01} for _ in range(3)]
    launcher = case.quick(*jobs, WAIT_SEC="5")
    if case.variant == "at the start":
        case.wait(lambda: case.rng.random() < 0.01 or any((case.cwd / "runs").iterdir()), launcher)
    else:
        number = case.rng.randint(2, 3)
        case.wait(lambda: len(count.folders(case.cwd)) >= number, launcher)
    time.sleep(case.rng.uniform(0, 4))
    fill(filler)
    case.tell(f"full with {len(count.folders(case.cwd))} folders there")
    if case.variant == "for a while":
        time.sleep(case.rng.uniform(0.1, 3))
        filler.unlink()
    code = launcher.end()
    case.require("Traceback" not in launcher.output, launcher.output[-3000:])
    case.wait_until_gone()
    filler.unlink(missing_ok=True)
    case.sync()
    results = [json.loads((folder / run_folder.RESULT).read_text()) for folder in count.folders(case.cwd)]
    kinds = [(result["status"], (result["failure"] or {}).get("kind")) for result in results]
    case.tell(f"exit code {code}: {kinds}")
    case.require({status for status, _ in kinds} <= {"finished", "failed"}, f"nobody was killed: {case.told}")
    case.require(code or all(status == "finished" for status, _ in kinds), f"that was no success: {case.told}")


def library(folder: Path) -> Path:
    """The clock that is loaded into the processes."""
    compiler, made = shutil.which("cc"), folder / "wall_clock.so"
    if compiler is None:
        raise Skipped("needs a C compiler (apt-get install gcc)")
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", str(made), str(SOURCE)], check=True)
    return made


def play_clock(case: Case) -> None:
    """The wall clock jumps by seconds or hours, once or several times, under the launcher and its worker."""
    clock = case.cwd / "clock"
    set_clock(clock, 0)
    environ = {"LD_PRELOAD": str(library(case.cwd)), "WALL_CLOCK": str(clock)}
    began = time.monotonic()
    if case.variant == "launch.py":
        launcher = case.real(**environ)
    else:
        jobs: list[dict[str, object]] = [{"then": "finish", "rows": 300, "sec": 0.02} for _ in range(2)]
        launcher = case.quick(*jobs, **environ)
    jump(case, launcher, clock)
    code = launcher.end()
    case.require(code == 0, f"{case.told}: the launch ended with {code}: {launcher.output[-3000:]}")
    case.wait_until_gone()
    case.sync()
    case.compare()
    seconds = time.monotonic() - began
    for folder in count.folders(case.cwd):
        metrics = json.loads((folder / run_folder.RESULT).read_text())["metrics"]
        odd = {key: value for key, value in metrics.items() if key.startswith("time/") and not 0 <= value <= seconds}
        case.require(not odd, f"durations that follow the wall clock: {odd}")


def set_clock(path: Path, off_sec: int) -> None:
    """In place: the processes have the file in their memory."""
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write((off_sec * 10**9).to_bytes(8, sys.byteorder, signed=True))


def jump(case: Case, launcher: Started, clock: Path) -> None:
    for _ in range(case.rng.randint(1, 4)):
        time.sleep(case.rng.uniform(0, 5))
        set_clock(clock, to := case.rng.choice(JUMPS_SEC))
        case.tell(
            f"{to:+,} s with {len(count.folders(case.cwd))} folders there{'' if launcher.alive else ', too late'}"
        )


DISK_FULL = Kind("full disk", ["at the start", "for a while", "to the end"], play_disk)
CLOCK = Kind("clock", ["launch.py", "sweep"], play_clock)
