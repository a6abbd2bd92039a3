"""What a machine does to its runs: a disk without room, and a clock that is set."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.chaos import count
from tests.chaos.case import Case, Kind, Skipped, Started
from tests.tracking.quick_worker import fill
from tracking.run import run_folder

DISK = "5m"
LIBRARIES = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1")
JUMPS = ("-30h", "-5h", "-61m", "-2s", "+3s", "+59m", "+6h", "+40h")


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
        case.wait(lambda: (case.cwd / "runs").iterdir(), launcher)
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


def library() -> str:
    for pattern in LIBRARIES:
        for path in Path("/").glob(pattern[1:]):
            return str(path)
    raise Skipped("needs libfaketime (apt-get install faketime)")


def play_clock(case: Case) -> None:
    """The wall clock jumps by seconds or hours, once or several times, under the launcher and its worker."""
    rc = case.cwd / "clock"
    rc.write_text("+0")
    environ = {
        "LD_PRELOAD": library(), "FAKETIME_TIMESTAMP_FILE": str(rc), "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1",
    }  # fmt: skip
    began = time.monotonic()
    if case.variant == "launch.py":
        launcher = case.real(**environ)
    else:
        jobs: list[dict[str, object]] = [{"then": "finish", "rows": 300, "sec": 0.02} for _ in range(2)]
        launcher = case.quick(*jobs, **environ)
    jump(case, launcher, rc)
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


def jump(case: Case, launcher: Started, rc: Path) -> None:
    for _ in range(case.rng.randint(1, 4)):
        time.sleep(case.rng.uniform(0, 5))
        with suppress(OSError):
            rc.write_text(to := case.rng.choice(JUMPS))
        case.tell(f"{to} with {len(count.folders(case.cwd))} folders there{'' if launcher.alive else ', too late'}")


DISK_FULL = Kind("full disk", ["at the start", "for a while", "to the end"], play_disk)
CLOCK = Kind("clock", ["launch.py", "sweep"], play_clock)
