"""Faults between the mirror and a real MLflow server: nothing is lost, nothing is there twice, and all is told."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.commands import HANGS_SEC
from tests.support.faulty_proxy import FAULTS, FaultyProxy
from tests.support.folders import end, make_folder, wait_for, write_rows
from tests.support.mlflow_server import MlflowServer
from tests.support.rows import expected_rows, runs_with_uid, status_of, stored_rows
from tracking.jobs.follow import sync
from tracking.jobs.follow.mirror_thread import MirrorThread
from tracking.store.mirror.mirror import Mirror
from tracking.store.server.server_errors import TrackingUnavailable, _retry_after_sec

pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second a request, as if that were the default: what the user sets is never exceeded."""
    monkeypatch.setattr("tracking.store.server.server_errors.DEFAULT_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[pytest.mark.exhaustive] * (fault == "drip")) for fault in FAULTS]
)
def test_a_run_survives_a_fault_at_its_start_in_its_middle_and_at_its_end(
    server: MlflowServer, proxy: FaultyProxy, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    folder = make_folder(tmp_path, proxy.uri)
    with proxy.failing(fault):  # at the start: nothing is there yet
        write_rows(folder, range(5))
        thread = MirrorThread(folder, interval_sec=0.05).start()
        wait_for(lambda: thread.status)
        assert proxy.uri in thread.status
    thread._wake.set()  # tries at once
    wait_for(lambda: thread.mirror.state.offset)
    with proxy.failing(fault):
        write_rows(folder, range(5, 10))
        wait_for(lambda: thread.status)
        write_rows(folder, range(10, 15))
    with proxy.failing(fault):
        end(folder)
        assert not thread.close(wait_sec=0.3)
    assert proxy.counts[fault] or fault == "refuse"
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", str(int(HANGS_SEC)))  # the server works, if slowly
    [outcome] = sync.sync([folder])
    assert outcome.state == "complete", outcome.message
    shipped = Mirror(folder)
    assert stored_rows(server, shipped.run_id) == expected_rows(folder)
    assert len(expected_rows(folder)) == 30
    assert [run for run, stage in runs_with_uid(server, shipped.info.uid) if stage == "active"] == [shipped.run_id]


def test_a_server_is_left_alone_for_as_long_as_it_asks(proxy: FaultyProxy, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, proxy.uri)
    write_rows(folder, range(3))
    end(folder)
    proxy.retry_after = "3"
    proxy.fault = "status 429"
    thread = MirrorThread(folder).start()
    wait_for(lambda: thread.status)
    assert "429" in thread.status
    proxy.fault = None
    refused_at, num_requests = proxy.times[-1], len(proxy.times)
    assert thread.close(wait_sec=HANGS_SEC)  # somebody waits, and the server's word counts all the same
    assert proxy.times[num_requests] - refused_at > 2.9


@pytest.mark.parametrize(("header", "sec"), [("7", 7.0), ("", 0.0), ("soon", 0.0), ("-1", 0.0)])
def test_retry_after_is_read(header: str, sec: float) -> None:
    assert _retry_after_sec(header) == sec


def test_retry_after_can_be_a_date() -> None:
    assert _retry_after_sec(time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 60))) > 55


def test_a_file_is_waited_for_that_the_server_takes_long_to_store(
    server: MlflowServer, proxy: FaultyProxy, tmp_path: Path, short_timeouts: None
) -> None:
    """300 MB go up at once; then the answer takes longer than any other request may."""
    folder = make_folder(tmp_path, proxy.uri)
    write_rows(folder, range(3))
    (folder / "worker.log").write_bytes(b"all is well\n" * (25 * 2**20))
    end(folder)
    proxy.only, proxy.delay_sec, proxy.fault = b"worker.log", 2.5, "slow"
    # A busy server may take longer than a second for other requests too, and these are tried again.
    wait_for(lambda: sync.sync([folder])[0].state == "complete" or proxy.counts["slow"] > 1)
    assert proxy.counts["slow"] == 1
    assert Mirror(folder).complete
    stored = server.folder / "served" / str(Mirror(folder).experiment_id) / str(Mirror(folder).run_id)
    assert (stored / "artifacts" / "worker.log").stat().st_size == (folder / "worker.log").stat().st_size


def test_a_file_that_is_refused_is_told_once_and_holds_up_nothing_else(
    server: MlflowServer, proxy: FaultyProxy, tmp_path: Path
) -> None:
    """As by a proxy with a limit for uploads, before which a 413 would be tried again for ever."""
    folders = [make_folder(tmp_path, proxy.uri, name) for name in ("large", "other")]
    for folder in folders:
        write_rows(folder, range(3))
        end(folder, "failed")
    (folders[0] / "worker.log").write_bytes(b"x" * 2**20)
    proxy.only, proxy.fault = b"worker.log", "status 413"
    thread = MirrorThread(folders[0]).start()
    start = time.monotonic()
    assert not thread.close(wait_sec=HANGS_SEC)
    assert time.monotonic() - start < HANGS_SEC  # nobody is kept waiting for what will not happen
    assert "worker.log (1,048,576 bytes)" in thread.status
    assert "413" in thread.status
    large, other = sync.sync(folders)
    assert (large.state, other.state) == ("failed", "complete")
    assert "413" in large.message
    assert status_of(server, Mirror(folders[0]).run_id) == "FAILED"
    assert Mirror(folders[0]).state.artifacts.keys() == {"config.yaml", "result.json"}
    proxy.fault = None
    assert sync.sync(folders[:1])[0].state == "complete"


def test_a_server_that_is_slow_to_answer_gets_more_time(
    server: MlflowServer, proxy: FaultyProxy, tmp_path: Path, short_timeouts: None
) -> None:
    folder = make_folder(tmp_path, proxy.uri)
    write_rows(folder, range(3))
    shipper = Mirror(folder)
    proxy.only, proxy.delay_sec, proxy.fault = b"log-batch", 1.5, "slow"
    with pytest.raises(TrackingUnavailable, match="timed out"):
        shipper.step()

    def shipped() -> bool:
        with suppress(TrackingUnavailable):  # A busy server may want more time than the next try allows.
            shipper.step()
        return shipper.state.offset > 0

    wait_for(shipped)
    assert stored_rows(server, shipper.run_id) == expected_rows(folder)
