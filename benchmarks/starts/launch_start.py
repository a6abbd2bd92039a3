"""Time of `launch.py` from the command to its worker's start, and from Ctrl-C to its exit, for two checkouts.

    python -m benchmarks.starts.launch_start OTHER_CHECKOUT --rounds 10

This checkout and the other one start the same run in turns. Each is stopped when its journal has `init_start`. Both use
this interpreter. An uncounted start compiles the bytecode of each.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN = ("model=tiny", "gpus=0", "max_epochs=1", "tracking.offline=true")


def once(checkout: Path) -> tuple[float, float]:
    """Seconds from the command to the worker's start, and from Ctrl-C to the launcher's exit."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(checkout / "launch.py"), "--config-dir", str(checkout / "tests/workloads/conf")]
        env = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / f"bytecode-{checkout.name}")}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([*command, *RUN], cwd=folder, env=env, **quiet)  # type: ignore[call-overload]
        while (started := started_sec(Path(folder))) is None and process.poll() is None:
            time.sleep(0.02)
        if started is None:
            raise SystemExit(f"{checkout}: the run ended before its worker started (exit code {process.returncode})")
        stopped = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait()
        return started, time.monotonic() - stopped


def started_sec(cwd: Path) -> float | None:
    """Seconds from the command to the worker's start by the journal; None while it has no such event."""
    for path in cwd.glob("runs/*/journal.jsonl"):
        for line in path.read_text().splitlines():
            if '"init_start"' in line and line.endswith("}"):
                return float(json.loads(line)["values"]["since_command_sec"])
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    checkouts = {"this": ROOT, "other": arguments.other.resolve()}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in checkouts}
    for number in range(arguments.rounds + 1):
        for name, checkout in checkouts.items():
            measured = once(checkout)
            taken[name] += [measured] if number else []
    for place, what in enumerate(("command to worker's start", "Ctrl-C to the end")):
        for name, rows in taken.items():
            values = [row[place] for row in rows]
            spread = f"{min(values):.2f} to {max(values):.2f}"
            print(f"{what}, {name}: median {statistics.median(values):.2f} s ({spread}, n = {len(values)})")
        differences = [mine[place] - theirs[place] for mine, theirs in zip(*taken.values(), strict=True)]
        print(f"{what}, this minus other within a round: median {statistics.median(differences):+.2f} s")


if __name__ == "__main__":
    main()
