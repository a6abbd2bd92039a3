"""Time of a sweep of short jobs with forked workers, beside a checkout that starts each worker from scratch.

    python -m benchmarks.starts.sweep_starts OTHER_CHECKOUT --rounds 3 --axis cpu_processes=1,2,3

Both checkouts run the same sweep in turns, with this interpreter. An uncounted sweep of two jobs compiles the bytecode
of each. Printed are the wall time of the command, the CPU time of all its processes, and `time/init_sec` of the first
job and of the others.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tracking.record import run_folder

RUN = ("-m", "model=tiny", "gpus=0", "max_epochs=1", "tracking.offline=true")
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def once(checkout: Path, axis: str) -> dict[str, float]:
    """Seconds of one sweep over `axis`: wall, CPU, and the start of the first and of the other jobs."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(checkout / "launch.py"), "--config-dir", str(checkout / "tests/workloads/conf")]
        env = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / f"bytecode-{checkout.name}")}
        used, began = cpu_sec(), time.monotonic()
        done = subprocess.run([*command, *RUN, axis], cwd=folder, env=env, capture_output=True, text=True, check=False)
        wall = time.monotonic() - began
        if done.returncode:
            raise SystemExit(f"{checkout}: exit code {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
        reap()
        paths = sorted(Path(folder).glob(f"runs/*/*/{run_folder.RESULT}"), key=lambda path: path.stat().st_mtime)
        starts = [json.loads(path.read_text())["metrics"]["time/init_sec"] for path in paths]
    assert len(starts) == 1 + axis.count(",")
    return {"wall": wall, "CPU": cpu_sec() - used, "first start": starts[0], "next start": statistics.mean(starts[1:])}


def cpu_sec() -> float:
    """CPU seconds of all ended descendants."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def reap() -> None:
    """Wait for all descendants, orphans included."""
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--axis", default="seed=1,2,3,4,5,6")
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    checkouts = {"this": ROOT, "other": arguments.other.resolve()}
    for checkout in checkouts.values():
        once(checkout, "seed=1,2")
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    for number in range(arguments.rounds):
        for name in (*checkouts,) if number % 2 == 0 else (*reversed(checkouts),):
            taken[name].append(once(checkouts[name], arguments.axis))
            print(name, taken[name][-1], f"load {os.getloadavg()[0]:.1f}", flush=True)
    for what in taken["this"][0]:
        for name, rows in taken.items():
            values = [row[what] for row in rows]
            spread = f"{min(values):.1f} to {max(values):.1f}, n = {len(values)}"
            print(f"{what}, {name}: median {statistics.median(values):.1f} s ({spread})")


if __name__ == "__main__":
    main()
