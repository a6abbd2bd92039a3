"""What a killed server, lost answers, lost rows, torn files and a wrong clock leave: every row, once, in one run."""

from __future__ import annotations

import math
import sqlite3
import time
from pathlib import Path

import pytest

from tests.support.commands import HANGS_SEC
from tests.support.folders import end, make_folder, wait_for, write_rows
from tests.support.mlflow_server import MlflowServer
from tests.support.rows import expected_rows, query, runs_with_uid, stored_rows, tags_of
from tracking.jobs.follow.mirror_thread import MirrorThread
from tracking.jobs.follow.sync import sync
from tracking.measure.training import clock
from tracking.record import run_folder
from tracking.record.journal import Journal, events
from tracking.store.mirror.mirror import UID_TAG, Mirror
from tracking.store.server.server_errors import TrackingUnavailable

# Only MLflow's dependencies raise these warnings: some use what others deprecate.
pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_every_row_arrives_once_when_the_server_is_killed_and_started_again(
    server: MlflowServer, tmp_path: Path
) -> None:
    folder = make_folder(tmp_path, server.uri)
    write_rows(folder, range(4000))
    thread = MirrorThread(folder, interval_sec=0.1).start()
    wait_for(lambda: thread.mirror.state.offset > 0)
    server.kill()
    wait_for(lambda: thread.status)
    assert server.uri in thread.status
    write_rows(folder, range(4000, 4200))
    end(folder)
    server.start()
    assert thread.close(wait_sec=HANGS_SEC), thread.status
    assert stored_rows(server, thread.mirror.run_id) == expected_rows(folder)
    assert len(expected_rows(folder)) == 8400


@pytest.mark.parametrize("route", ["http", "sqlite"])
def test_sending_again_after_a_doubt_changes_nothing(server: MlflowServer, tmp_path: Path, route: str) -> None:
    folder = make_folder(tmp_path, server.uri if route == "http" else f"sqlite:///{server.database}")
    write_rows(folder, range(20), nan=math.nan, inf=math.inf, ninf=-math.inf)
    journal = Journal(folder / run_folder.JOURNAL)
    journal.params({"seed": 1, "compile": None, "empty": ""})
    journal.tags({"env.torch": "2.11", "empty": ""})
    shipper = Mirror(folder)
    assert shipper.step() == 20 * 5 + 5
    for _ in range(2):
        forget(shipper, offset=0)
        journal.metrics({"late": math.nan}, 7)  # a batch of old rows and new ones
        assert shipper.step() > 100
    assert len(expected_rows(folder)) == 102
    assert stored_rows(server, shipper.run_id) == expected_rows(folder)
    params = query(server, "select key, value from params where run_uuid = ?", shipper.run_id)
    assert dict(params) == {"seed": "1", "compile": "None", "empty": ""}
    assert tags_of(server, shipper.run_id)["env.torch"] == "2.11"
    assert shipper.step() == 0


def test_a_run_is_created_once_when_the_answer_is_lost(server: MlflowServer, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, server.uri)
    shipper = Mirror(folder)
    create = shipper._client.mlflow.create_run

    def lose_the_answer(*arguments: object) -> None:
        create(*arguments)
        raise ConnectionResetError("lost")

    shipper._client.mlflow.create_run = lose_the_answer  # type: ignore[method-assign, assignment]
    with pytest.raises(TrackingUnavailable, match="lost"):
        shipper.step()
    assert Mirror(folder).run_id is None
    again = Mirror(folder)
    again.step()
    assert runs_with_uid(server, again.info.uid) == [(again.run_id, "active")]


def test_a_creation_that_lands_late_is_removed_at_the_end(server: MlflowServer, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, server.uri)
    shipper = Mirror(folder)
    shipper.state.num_creations = 1
    shipper._save()
    shipper.step()
    late = shipper._client.mlflow.create_run(shipper.experiment_id or "", tags={UID_TAG: shipper.info.uid})
    end(folder)
    write_rows(folder, range(1))
    shipper.finish()
    assert set(runs_with_uid(server, shipper.info.uid)) == {(shipper.run_id, "active"), (late.info.run_id, "deleted")}


def test_a_wall_clock_that_is_set_back_loses_no_row_and_ends_no_run_before_it_began(
    server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(tmp_path, server.uri)
    path = folder / run_folder.JOURNAL
    journal = Journal(path)
    real, offset_ns = time.time_ns, -3600 * 10**9  # set back between the folder's making and its first record
    monkeypatch.setattr(time, "time_ns", lambda: real() + offset_ns)
    journal.event("epoch_start")
    for step in range(6):
        journal.metrics({"loss": 1.0, "same": 2.0}, step // 2)  # the same value at the same step
        offset_ns -= 3600 * 10**9
    stop = journal.event("epoch_stop")
    end(folder)
    assert sync([folder])[0].state == "complete"
    shipped = Mirror(folder)
    assert len(stored_rows(server, shipped.run_id)) == 12
    assert stored_rows(server, shipped.run_id) == expected_rows(folder)
    [(start_time, end_time)] = query(server, "select start_time, end_time from runs where run_uuid = ?", shipped.run_id)
    assert stop.time_ms < start_time <= end_time
    [(begin, finish)] = clock.intervals(events(path), "epoch")
    assert 0 <= finish - begin < HANGS_SEC  # durations are by the monotonic clock


def test_a_server_that_has_lost_rows_gets_them_again(server: MlflowServer, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, server.uri)
    write_rows(folder, range(10))
    end(folder)
    sync([folder])
    run_id = Mirror(folder).run_id
    with sqlite3.connect(server.database, timeout=HANGS_SEC) as database:
        database.execute("delete from metrics where run_uuid = ? and step > 3", (run_id,))
    database.close()
    assert [outcome.state for outcome in sync([folder])] == ["complete"]
    assert len(stored_rows(server, run_id)) == 8  # nobody knows
    assert [outcome.state for outcome in sync([folder], again=True)] == ["complete"]
    assert Mirror(folder).run_id == run_id
    assert stored_rows(server, run_id) == expected_rows(folder)


def test_state_that_is_torn_and_a_journal_that_is_shorter_than_before_are_sent_anew(
    server: MlflowServer, tmp_path: Path
) -> None:
    """As after a power cut: nothing of it makes a second run, or leaves rows out."""
    folder = make_folder(tmp_path, server.uri)
    write_rows(folder, range(10))
    shipper = Mirror(folder)
    shipper.step()
    run_id = shipper.run_id
    path = folder / run_folder.JOURNAL
    path.write_bytes(path.read_bytes()[:150])
    write_rows(folder, range(20, 22))
    Mirror(folder).step()
    assert set(expected_rows(folder)) <= set(stored_rows(server, run_id))
    (folder / run_folder.MIRROR).write_text("")
    write_rows(folder, range(30, 40))
    end(folder)
    assert sync([folder])[0].state == "complete"
    assert Mirror(folder).run_id == run_id
    assert set(expected_rows(folder)) <= set(stored_rows(server, run_id))
    assert len(runs_with_uid(server, shipper.info.uid)) == 1


def forget(shipper: Mirror, **changes: object) -> None:
    for name, value in changes.items():
        setattr(shipper.state, name, value)
    shipper._save()
