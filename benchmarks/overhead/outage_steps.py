"""Step times of one training while its tracking server answers and while it fails, in turns.

    python benchmarks/overhead/outage_steps.py    # two cycles of five faults, about 40 s on two idle CPU cores
    python benchmarks/overhead/outage_steps.py --cycles 9

In a failing phase the server hangs, refuses connections, answers 500 or 429, or loses its answers. It is compared with
the phases before and after it, so other load on the machine affects both alike. A step that waited for an answer would
take as long as the server hangs. tests/tracking/store/mirror/test_outage.py checks that training goes on and that no
row is lost.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.commands import TINY, collect, events, start
from tests.support.faulty_proxy import FaultyProxy
from tests.support.folders import wait_for
from tests.support.mlflow_server import MlflowServer
from tracking.record import run_folder

FAULTS = ("hang", "refuse", "status 500", "drop answer", "status 429")
PHASES = [phase for fault in FAULTS for phase in (None, fault)]  # in turns, so that drift affects both alike
PHASE_SEC, PHASE_WINDOWS = 0.7, 5  # shortest phase: seconds, and windows of three steps
HANG_SEC = 2.5
SETTINGS = ("model.hparams.work=5", "max_epochs=100000", "stop_at_target=false", "batch_size=32", "timeout_sec=7200")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=2, help="number of times that each fault occurs")
    cycles = parser.parse_args().cycles
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        with MlflowServer(root) as server, FaultyProxy(server.port) as proxy:
            folder, switched = trained(root, proxy, cycles)
        report(step_times(folder, switched), folder)


def trained(root: Path, proxy: FaultyProxy, cycles: int) -> tuple[Path, list[tuple[float, str | None]]]:
    """The folder of a run under faults, and the times (ms) at which the server switched, with the new fault."""
    enough = root / "enough"
    process = start(
        root, *TINY, *SETTINGS, f"tracking.uri={proxy.uri}", "tracking.upload_wait_sec=2",
        f"model.hparams.until={enough}", "log_every_n_steps=3", "tracking.system_metrics_interval_sec=0.5",
        MLFLOW_HTTP_REQUEST_TIMEOUT="5",
    )  # fmt: skip
    runs = root / "runs"
    wait_for(lambda: process.poll() or any(events(folder, "run_start") for folder in run_folder.run_folders(runs)))
    [folder] = run_folder.run_folders(runs)
    switched = fail_in_turn(proxy, cycles, folder, lambda: process.poll() is not None)
    enough.touch()
    launched = collect(process, root)
    assert launched.code == 0, launched.output
    return launched.folder, switched


def fail_in_turn(
    proxy: FaultyProxy, cycles: int, folder: Path, over: Callable[[], bool]
) -> list[tuple[float, str | None]]:
    """Make the server fail and answer in turns. Returns the switches as (ms, fault)."""
    switched: list[tuple[float, str | None]] = []
    for fault in [*cycles * PHASES, None, None]:
        proxy.fault = fault
        switched.append((time.time() * 1e3, fault))
        enough = num_windows(folder) + PHASE_WINDOWS
        time.sleep(HANG_SEC if fault == "hang" else PHASE_SEC)
        wait_for(lambda enough=enough: over() or num_windows(folder) >= enough)
        if over():
            break
    return switched


def num_windows(folder: Path) -> int:
    return len(events(folder, "throughput_window"))


def step_times(folder: Path, switched: list[tuple[float, str | None]]) -> list[list[float]]:
    """Milliseconds of the steps within each phase."""
    phases: list[list[float]] = [[] for _ in switched]
    for window in events(folder, "throughput_window"):
        # A window is journaled when the next one is full: it ended one window earlier.
        begin, end = window.time_ms - 2 * sum(window.values["step_ms"]), window.time_ms
        for steps, (since, until) in zip(phases, itertools.pairwise(time_ms for time_ms, _ in switched), strict=False):
            if since <= begin and end <= until:
                steps += window.values["step_ms"]
    return phases


def report(phases: list[list[float]], folder: Path) -> None:
    """Print the medians, and the ratio of each failing phase to the phases around it, if all three have steps."""
    triples = [(phases[i - 1], phases[i], phases[i + 1]) for i in range(1, len(phases) - 1, 2)]
    ratios = [statistics.median(bad) / statistics.median(before + after) for before, bad, after in triples
              if before and bad and after]  # fmt: skip
    longest = max(ms for window in events(folder, "throughput_window") for ms in window.values["step_ms"])
    print(f"step, median: {described(phases[0::2])} while the server answers, {described(phases[1::2])} while it fails")
    print(f"longest step: {longest:.0f} ms; the server hung for {1e3 * HANG_SEC:.0f} ms at a time")
    if len(ratios) < 2:
        print("too few phases have steps to compare: the machine is too slow or too busy")
        return
    low, median, high = statistics.quantiles(ratios)
    print(f"failing phase / phases around it: median {median:.3f}, quartiles {low:.3f} to {high:.3f} of {len(ratios)}")


def described(phases: list[list[float]]) -> str:
    """The median of these phases' steps, and their number."""
    steps = [ms for phase in phases for ms in phase]
    return f"{statistics.median(steps):.3f} ms of {len(steps)}" if steps else "no steps"


if __name__ == "__main__":
    main()
