"""Time from a second Ctrl-C to a launcher's exit, for two checkouts. The workers end only when they are killed.

    python -m benchmarks.starts.second_interrupt OTHER_CHECKOUT --rounds 5 --busy 3

Both checkouts run the same sweep in turns, with this interpreter. Its worker trains, and is stopped (SIGSTOP), so that
only the second Ctrl-C ends it. `--busy` is the number of processes that compute beside the sweep.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.run_processes import workers_of
from tracking.record import run_folder

OPTIONS = ("max_epochs=100000", "target=1", "stop_at_target=false", "model.hparams.rest_sec=0.02", "seed=1,2")
RUN = ("-m", "model=tiny", "gpus=0", "tracking.offline=true", *OPTIONS)
TRAINING_SEC = 0.5  # before the first Ctrl-C
BETWEEN_SEC = 0.3  # from the first Ctrl-C to the second


def once(checkout: Path) -> float:
    """Seconds from the second Ctrl-C to the launcher's end."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(checkout / "launch.py"), "--config-dir", str(checkout / "tests/workloads/conf")]
        env = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / f"bytecode-{checkout.name}")}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([*command, *RUN], cwd=folder, env=env, **quiet)  # type: ignore[call-overload]
        while (run := training(Path(folder))) is None:
            if process.poll() is not None:
                raise SystemExit(f"{checkout}: the sweep has ended before it trained, with {process.returncode}")
            time.sleep(0.02)
        time.sleep(TRAINING_SEC)
        for worker in workers_of(run, Path(folder)):
            for each in (*worker.children(recursive=True), worker):
                each.suspend()
        process.send_signal(signal.SIGINT)
        time.sleep(BETWEEN_SEC)
        told = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait()
        return time.monotonic() - told


def training(cwd: Path) -> Path | None:
    """The folder of the run that trains, once one does."""
    journals = cwd.glob(f"runs/*/*/{run_folder.JOURNAL}")
    return next((path.parent for path in journals if '"epoch_start"' in path.read_text()), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", type=int, default=0)
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background job ignores it, and so would these.
    checkouts = {"this": ROOT, "other": arguments.other.resolve()}
    taken: dict[str, list[float]] = {name: [] for name in checkouts}
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)]
    try:
        for _ in range(arguments.rounds):
            for name, checkout in checkouts.items():
                taken[name].append(once(checkout))
                print(f"{name}: {taken[name][-1]:.2f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    finally:
        for process in busy:
            process.kill()
    for name, values in taken.items():
        spread = f"{min(values):.2f} to {max(values):.2f}, n = {len(values)}"
        print(f"second Ctrl-C to the launcher's end, {name}: median {statistics.median(values):.2f} s ({spread})")


if __name__ == "__main__":
    main()
