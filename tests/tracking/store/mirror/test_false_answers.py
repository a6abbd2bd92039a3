"""False successes: what the server acknowledged and does not have is found before a run is called complete."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.support.commands import HANGS_SEC
from tests.support.faulty_proxy import FALSE_ANSWERS, FaultyProxy
from tests.support.folders import end, make_folder, write_rows
from tests.support.mlflow_server import MlflowServer
from tests.support.rows import expected_rows, query, stored_rows, tags_of
from tracking.jobs.follow.sync import sync
from tracking.record import run_folder
from tracking.record.journal import Journal
from tracking.store.mirror.mirror import Mirror
from tracking.store.server.server_errors import TrackingUnavailable, check_server

pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.mark.parametrize("fault", FALSE_ANSWERS)
def test_files_that_are_said_to_be_there_and_are_not_are_sent_again(
    server: MlflowServer, proxy: FaultyProxy, tmp_path: Path, fault: str
) -> None:
    folder = make_folder(tmp_path, proxy.uri)
    write_rows(folder, range(3))
    end(folder)
    proxy.only, proxy.fault = b"PUT ", fault
    with pytest.raises(TrackingUnavailable):
        Mirror(folder).finish()
    assert proxy.counts[fault]
    assert not Mirror(folder).complete
    proxy.fault = None
    [outcome] = sync([folder])
    assert outcome.state == "complete", outcome.message
    [stored] = server.folder.glob(f"served/*/{Mirror(folder).run_id}/artifacts")
    assert {path.name for path in stored.iterdir()} == {"config.yaml", "result.json"}
    assert (stored / "config.yaml").read_text() == "seed: 1\n"


def test_rows_that_are_said_to_be_there_and_are_not_are_sent_again(
    server: MlflowServer, proxy: FaultyProxy, tmp_path: Path
) -> None:
    folder = make_folder(tmp_path, proxy.uri)
    journal = Journal(folder / run_folder.JOURNAL)
    write_rows(folder, range(5))
    shipper = Mirror(folder)
    shipper.step()
    proxy.only, proxy.fault = b"log-batch", "false acknowledgement"
    journal.params({"lr": 0.1})
    journal.tags({"env.torch": "2.11"})
    write_rows(folder, range(5, 10))
    shipper.step()
    proxy.fault = None
    write_rows(folder, range(10, 15))  # the last rows are there, and in the middle some are not
    shipper.step()
    assert len(stored_rows(server, shipper.run_id)) == 20
    end(folder)
    [outcome] = sync([folder])
    assert outcome.state == "complete", outcome.message
    assert stored_rows(server, shipper.run_id) == expected_rows(folder)
    assert query(server, "select key from params where run_uuid = ?", shipper.run_id) == [("lr",)]
    assert tags_of(server, shipper.run_id)["env.torch"] == "2.11"


def test_a_server_that_acknowledges_everything_and_stores_nothing_is_found_out(
    server: MlflowServer, proxy: FaultyProxy, tmp_path: Path
) -> None:
    """At the start, where it makes no run; at the end, where it has one without its rows or status."""
    folder = make_folder(tmp_path, proxy.uri)
    write_rows(folder, range(5))
    with proxy.failing("false acknowledgement"), pytest.raises(TrackingUnavailable, match="without"):
        Mirror(folder).step()
    end(folder)
    for only, lacks in ((b"runs/update", "the status FINISHED"), (b"log-batch", "5 of 5 rows of late")):
        if only == b"log-batch":
            write_rows(folder, range(5), late=1.0)
        proxy.only = only
        with proxy.failing("false acknowledgement"), pytest.raises(TrackingUnavailable, match=lacks):
            Mirror(folder).finish()
        assert not Mirror(folder).complete
    proxy.only = b""
    with proxy.failing("false acknowledgement"), pytest.raises(TrackingUnavailable, match="without"):
        Mirror(folder).finish()
    [outcome] = sync([folder])
    assert outcome.state == "complete", outcome.message
    assert stored_rows(server, Mirror(folder).run_id) == expected_rows(folder)


@pytest.mark.parametrize("older", [False, True])
def test_a_row_that_is_missing_beside_one_too_many_is_found_out(
    server: MlflowServer, tmp_path: Path, older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a server has no pages of rows, as older ones have not."""
    folder = make_folder(tmp_path, server.uri)
    write_rows(folder, range(10), nan=float("nan"), inf=float("inf"), zero=-0.0)
    shipper = Mirror(folder)
    shipper.step()
    with sqlite3.connect(server.database, timeout=HANGS_SEC) as database:
        of = "where run_uuid = ? and key = 'train/loss' and step = 4"
        database.execute(f"update metrics set timestamp = timestamp + 1 {of}", (shipper.run_id,))
        database.execute(f"delete from metrics {of.replace('4', '6')}", (shipper.run_id,))
    database.close()
    if older:
        monkeypatch.setattr("tracking.store.mirror.server_check._page_holds_the_last", lambda *_: 1 / 0)
    end(folder)
    [outcome] = sync([folder])
    assert outcome.state == "complete", outcome.message
    stored = stored_rows(server, shipper.run_id)
    assert set(expected_rows(folder)) < set(stored)
    assert len(stored) == 51


def test_the_start_says_of_a_login_page_what_it_is(proxy: FaultyProxy) -> None:
    for fault, words in (("login page", "text/html"), ("empty answer", "an empty answer"), ("login redirect", "POST")):
        with proxy.failing(fault), pytest.raises(TrackingUnavailable, match=words):
            check_server(proxy.uri)
