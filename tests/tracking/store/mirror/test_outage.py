"""A real training, and a server that fails in every way while it runs and stays away past its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import TINY, begin, collect, events
from tests.support.faulty_proxy import FaultyProxy
from tests.support.folders import wait_for
from tests.support.mlflow_server import MlflowServer
from tests.support.rows import expected_rows, status_of, stored_rows
from tracking.__main__ import main
from tracking.record import run_folder
from tracking.store.mirror.mirror import Mirror

pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

FAULTS = ("hang", "status 500", "drop answer", "status 429")  # "refuse" comes at the start and at the end.
WINDOWS = 3  # windows of three steps that the training goes on for in the face of every fault
SETTINGS = (
    "model.hparams.rest_sec=0.02",
    "max_epochs=100000",
    "stop_at_target=false",
    "batch_size=32",
    "timeout_sec=7200",
)
# No request is given up while its server hangs: a step that waited for an answer would wait until this test's limit.
PATIENT = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "7200"}


def test_training_is_not_delayed_and_nothing_is_lost(
    server: MlflowServer, proxy: FaultyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long a step takes meanwhile is measured by benchmarks/overhead/outage_steps.py."""
    places = (f"tracking.uri={proxy.uri}", "tracking.upload_wait_sec=2", "tracking.experiment=tests")
    proxy.fault = "refuse"  # no server when it starts
    enough = tmp_path / "enough"
    process = begin(
        tmp_path, *TINY, *SETTINGS, *places, f"model.hparams.until={enough}",
        "log_every_n_steps=3", "tracking.system_metrics_interval_sec=0.5", **PATIENT,
    )  # fmt: skip
    trains = tmp_path / "runs"
    wait_for(lambda: process.poll() or any(events(folder, "run_start") for folder in run_folder.run_folders(trains)))
    [folder] = run_folder.run_folders(trains)
    goes_on(folder)
    for fault in FAULTS:
        proxy.fault = None
        answered = len(proxy.times)
        wait_for(lambda answered=answered: len(proxy.times) > answered)  # the server is there, and is asked
        proxy.fault = fault
        wait_for(lambda fault=fault: proxy.counts[fault])
        goes_on(folder)
    proxy.fault = "refuse"  # no server when it ends
    enough.touch()
    launched = collect(process, tmp_path)
    assert launched.code == 0, launched.output
    assert "The run trains anyway" in launched.output
    assert f"not uploaded: {folder}" in launched.output
    assert f"-m tracking sync runs/{folder.name}" in launched.output

    proxy.fault = None
    monkeypatch.chdir(tmp_path)
    assert main(["sync", f"runs/{folder.name}"]) == 0
    assert stored_rows(server, Mirror(folder).run_id) == expected_rows(folder)
    assert status_of(server, Mirror(folder).run_id) == "FINISHED"


def goes_on(folder: Path) -> None:
    """Wait until the training has journaled further windows, while the server does what it does now."""
    before = len(events(folder, "throughput_window"))
    wait_for(lambda: len(events(folder, "throughput_window")) >= before + WINDOWS)
