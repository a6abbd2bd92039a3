"""A real training, and a server that fails in every way while it runs and stays away past its end."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import TINY, collect, environment, events, start
from tests.tracking.faulty_proxy import FaultyProxy
from tests.tracking.folders import wait_for
from tests.tracking.mlflow_server import MlflowServer
from tests.tracking.rows import expected_rows, status_of, stored_rows
from tracking.mirror.mirror import Mirror
from tracking.run import run_folder

pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

CYCLES = int(os.environ.get("TIMETRIAL_OUTAGE_CYCLES", "2"))  # of all phases, however fast the machine trains
FAULTS = ("hang", "refuse", "status 500", "drop answer", "status 429")
PHASES = [phase for fault in FAULTS for phase in (None, fault)]  # in turn, so that drift hits both alike
PHASE_SEC = 0.7
HANG_SEC = 2.5
SETTINGS = ("model.hparams.work=5", "max_epochs=100000", "stop_at_target=false", "batch_size=32", "timeout_sec=900")


def test_training_is_not_delayed_and_nothing_is_lost(
    server: MlflowServer, proxy: FaultyProxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = (f"tracking.uri={proxy.uri}", "tracking.upload_wait_sec=2", "tracking.experiment=tests")
    proxy.fault = "refuse"  # nor is anybody there when it starts
    enough = tmp_path / "enough"
    process = start(
        tmp_path, *TINY, *SETTINGS, *places, f"model.hparams.until={enough}",
        "log_every_n_steps=3", "tracking.system_metrics_interval_sec=0.5", MLFLOW_HTTP_REQUEST_TIMEOUT="5",
    )  # fmt: skip
    trains = tmp_path / "runs"
    wait_for(lambda: process.poll() or any(events(one, "run_start") for one in run_folder.run_folders(trains)), 120)
    [folder] = run_folder.run_folders(trains)
    switched = fail_in_turn(proxy, lambda: process.poll() is not None)
    proxy.fault = "refuse"  # and nobody is there when it ends
    enough.touch()
    launched = collect(process, tmp_path)
    assert launched.code == 0, launched.output
    assert "The run trains all the same" in launched.output
    assert f"not uploaded: {folder}" in launched.output
    assert f"-m tracking sync runs/{folder.name}" in launched.output

    phases = step_times(folder, switched)
    well, badly = (phases[0::2], phases[1::2])
    # Against the phases before and after it, so that what else the machine does hits both alike.
    ratios = [statistics.median(bad) / statistics.median(before + after) for before, bad, after in triples(phases)]
    longest = max(ms for window in events(folder, "throughput_window") for ms in window.values["step_ms"])
    assert len(ratios) >= 3
    ratio = statistics.median(ratios)
    with capsys.disabled():
        print(f"\nstep, median: {describe(well)} while the server answers, {describe(badly)} while not;", end=" ")
        print(f"longest {longest:.0f} ms; a phase over those around it: {spread(ratios)}")
    assert longest < 1500  # a step that waited for an answer would take all of HANG_SEC
    assert 0.7 < ratio < 1.4

    proxy.fault = None
    command = [sys.executable, "-m", "tracking", "sync", f"runs/{folder.name}"]
    synced = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert synced.returncode == 0, synced.stdout
    assert stored_rows(server, Mirror(folder).run_id) == expected_rows(folder)
    assert status_of(server, Mirror(folder).run_id) == "FINISHED"


def fail_in_turn(proxy: FaultyProxy, over: Callable[[], bool]) -> list[tuple[float, str | None]]:
    """Have the server answer and fail in turn, and answer at last; when it was switched, in ms, to which fault."""
    switched: list[tuple[float, str | None]] = []
    for fault in [*CYCLES * PHASES, None, None]:
        proxy.fault = fault
        switched.append((time.time() * 1e3, fault))
        if over():
            break
        time.sleep(HANG_SEC if fault == "hang" else PHASE_SEC)
    return switched


def step_times(folder: Path, switched: list[tuple[float, str | None]]) -> list[list[float]]:
    """Milliseconds of the steps that lie within each phase."""
    found: list[list[float]] = [[] for _ in switched]
    for window in events(folder, "throughput_window"):
        # A window is journaled when the next one is full, so it ends a window's time before that.
        begin, end = window.time_ms - 2 * sum(window.values["step_ms"]), window.time_ms
        for steps, (since, until) in zip(found, itertools.pairwise(time_ms for time_ms, _ in switched), strict=False):
            if since <= begin and end <= until:
                steps += window.values["step_ms"]
    return found


def triples(phases: list[list[float]]) -> list[tuple[list[float], list[float], list[float]]]:
    """Each phase in which the server fails, between its neighbours, where all three have steps."""
    found = [(phases[i - 1], phases[i], phases[i + 1]) for i in range(1, len(phases) - 1, 2)]
    return [three for three in found if all(three)]


def describe(phases: list[list[float]]) -> str:
    steps = [ms for phase in phases for ms in phase]
    return f"{statistics.median(steps):.3f} ms of {len(steps)}"


def spread(ratios: list[float]) -> str:
    low, median, high = statistics.quantiles(ratios)
    return f"median {median:.3f}, quartiles {low:.3f} to {high:.3f} of {len(ratios)}"
