"""URIs and links, and servers that refuse, fail and hang; store/mirror/test_mirror.py has one that works."""

from __future__ import annotations

import itertools
import os
import socket
import sqlite3
import threading
import time
from contextlib import closing, nullcontext, suppress
from pathlib import Path

import pytest

from conf.schema import ConfigError
from tests.support.commands import HANGS_SEC
from tests.support.folders import end, make_folder, wait_for
from tests.support.mlflow_server import answering
from tracking.base.secrets import strip_credentials
from tracking.jobs.follow.mirror_thread import MirrorThread
from tracking.store import server
from tracking.store.mirror import mlflow_run
from tracking.store.mirror.mirror import Mirror
from tracking.store.server import connection, uris
from tracking.store.server.server_errors import TrackingRefused, TrackingUnavailable

TRAINING = uris.MODEL_TRAINING

# Only MLflow's dependencies raise these warnings: some use what others deprecate.
pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_links_lead_to_routes_that_this_mlflow_has() -> None:
    import mlflow

    [script] = (Path(mlflow.__file__).parent / "server/js/build/static/js").glob("main.*.js")
    routes = script.read_text(encoding="utf-8")
    assert '"/compare-runs"' in routes
    assert "?runs=${JSON.stringify(e)}&experiments=${JSON.stringify(t)}" in routes
    assert '"/experiments/:experimentId/runs/:runUuid"' in routes
    page = f"#/experiments/3/runs/ab?{TRAINING}"
    assert server.run_link("http://u:p@host:1/", "3", "ab") == f"http://host:1/{page}"
    assert server.run_link("sqlite:////a/mlflow.db", "3", "ab") == f"http://127.0.0.1:5000/{page}"
    assert server.compare_link("http://host:1", "3", ["a", "b"]) == (
        f"http://host:1/#/compare-runs?runs=%5B%22a%22%2C%22b%22%5D&experiments=%5B%223%22%5D&{TRAINING}"
    )
    assert '"viewStateShareKey"' in routes
    assert f'"{mlflow_run.VIEW_TAG}"' in routes
    below = "https://u:p@host/team/mlflow/"
    assert server.view_link(below, "3", "s 1") == (
        f"https://host/team/mlflow/#/experiments/3/runs?viewStateShareKey=s%201&{TRAINING}"
    )
    assert "compareRunsMode=CHART&" in server.view_link(below, "3", "s", charts=True)
    assert server.search_link(below, "3", "tags.a = 'b'", "metrics.`time/c`") == (
        "https://host/team/mlflow/#/experiments/3/runs?searchFilter=tags.a%20%3D%20%27b%27"
        f"&orderByKey=metrics.%60time%2Fc%60&orderByAsc=true&{TRAINING}"
    )


def test_a_uri_that_mlflow_cannot_use_is_refused_by_what_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"^--uri=mlruns: not a tracking server .* Allowed: sqlite:///FILE"):
        server.option_uri("mlruns")
    for uri in ("http://host:99999", "postgresql://host:port/runs"):
        with pytest.raises(ConfigError, match=rf"^--uri={uri}: Port .* Next: give a port from 1 to 65535"):
            server.option_uri(uri)
    with pytest.raises(ConfigError, match=r"^--uri=sqlite:///~no.such.user/a.db: no user here has this home"):
        server.option_uri("sqlite:///~no.such.user/a.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "mlruns")
    with pytest.raises(ConfigError, match=r"^MLFLOW_TRACKING_URI=mlruns: not a tracking server"):
        server.option_uri(None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://user:password@a-database/runs")
    assert server.option_uri(None) == "postgresql://user:password@a-database/runs"


def test_a_databases_server_that_is_not_there_is_told_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"postgresql://user:secret@127.0.0.1:{free.getsockname()[1]}/runs"
        with pytest.raises(TrackingUnavailable, match=r"^postgresql://127.0.0.1:\d+/runs: nothing listens there"):
            server.check_server(uri)
        with (
            pytest.raises(TrackingUnavailable, match=r"^postgresql://127.0.0.1:\d+/runs: nothing listens there"),
            server.as_tracking_errors(uri, ""),
        ):
            server.open_client(uri)
        free.listen()
        server.check_server(uri)
    server.check_server("postgresql:///runs?host=/var/run/postgresql")  # a socket's URI has no host to connect to


def test_uris_are_by_default_a_database_here_and_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert server.default_uri() == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://u:p@host")
    assert server.default_uri() == "http://u:p@host"
    assert server.absolute_uri("sqlite:///x.db?timeout=5") == f"sqlite:///{tmp_path}/x.db?timeout=5"
    assert server.absolute_uri("sqlite:////x.db") == "sqlite:////x.db"
    assert server.ui_command("http://host") is None
    assert server.ui_command("sqlite:////a b/mlflow.db") == (
        "mlflow ui --backend-store-uri 'sqlite:////a b/mlflow.db' --port 5000"
    )
    for uri, stripped in {
        "http://u:p@ss@host:1/x": "http://host:1/x",
        "postgresql://u:p@host/db": "postgresql://host/db",
        "postgresql://host/db?user=u&password=p&sslmode=require": "postgresql://host/db?sslmode=require",
        "sqlite:////a@b/mlflow.db": "sqlite:////a@b/mlflow.db",
        "databricks": "databricks",
    }.items():
        assert strip_credentials(uri) == stripped


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, TrackingRefused), (403, TrackingRefused), (429, TrackingUnavailable), (500, TrackingUnavailable)],
)
def test_a_refusal_is_told_from_an_outage(
    tmp_path: Path, status: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken")
    with answering(status) as (uri, headers):
        server.option_uri(uri)
        folder = make_folder(tmp_path, uri)
        for action in (Mirror(folder).step, lambda: server.check_server(uri)):
            with pytest.raises(error) as caught:
                action()
            assert uri in str(caught.value)
            assert ("MLFLOW_TRACKING_USERNAME" in str(caught.value)) == (error is TrackingRefused)
        assert set(headers) == {"Bearer t0ken"}
    for action in (Mirror(folder).step, lambda: server.check_server(uri)):
        with pytest.raises(TrackingUnavailable) as caught:
            action()
        assert str(caught.value) == f"{uri}: {connection.OUTAGES['Connection refused']}"


def test_a_database_whose_connection_is_gone_is_an_outage_although_mlflow_says_400(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "")
    for error_code, error in (("BAD_REQUEST", TrackingUnavailable), ("INVALID_PARAMETER_VALUE", TrackingRefused)):
        with answering(400, error_code=error_code) as (uri, _), pytest.raises(error):
            Mirror(folder, uri).step()


@pytest.mark.slow
def test_a_server_that_hangs_costs_one_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setattr(connection, "TIMEOUT_SEC", 1)
    import mlflow  # noqa: F401  the import is no part of the request

    with socket.create_server(("127.0.0.1", 0)) as hanging:
        uri = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        folder = make_folder(tmp_path, uri)
        for action in (Mirror(folder).step, lambda: server.check_server(uri)):
            with pytest.raises(TrackingUnavailable):
                action()
            assert num_connections(hanging) == 1, "it asks once, and whoever called it decides when to ask again"
        end(folder)
        thread = MirrorThread(folder).start()
        thread.ended()
        wait_for(lambda: thread.status)
        start = time.monotonic()
        assert not thread.close(wait_sec=0.5)
        assert time.monotonic() - start < HANGS_SEC


@pytest.mark.slow
def test_an_answer_that_comes_byte_by_byte_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes within the timeout, and the answer never ends."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setattr(connection, "TIMEOUT_SEC", 1)
    over = threading.Event()

    def drip(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                with client, suppress(OSError):
                    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n{")
                    while not over.wait(0.1):
                        client.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as dripping:
        threading.Thread(target=drip, args=(dripping,), daemon=True).start()
        uri = f"http://127.0.0.1:{dripping.getsockname()[1]}"
        with pytest.raises(TrackingUnavailable, match="no answer within"):
            server.check_server(uri)
        over.set()
    over.clear()
    with socket.create_server(("127.0.0.1", 0)) as dripping:
        threading.Thread(target=drip, args=(dripping,), daemon=True).start()
        folder = make_folder(tmp_path, f"http://127.0.0.1:{dripping.getsockname()[1]}")
        with pytest.raises(TrackingUnavailable, match="incomplete after 4 s"):
            Mirror(folder).step()
        over.set()


def num_connections(listening: socket.socket) -> int:
    """How many clients have connected since the last call, whether or not they are still there."""
    listening.setblocking(False)
    for number in itertools.count():
        try:
            listening.accept()[0].close()
        except BlockingIOError:
            return number
    raise AssertionError("unreachable")


def test_a_file_that_is_no_database_is_refused_at_once(tmp_path: Path) -> None:
    """A run would be trained first, and then have nowhere to go."""
    (tmp_path / "letter").write_text("Dear all, this is no database")
    os.mkfifo(tmp_path / "pipe")
    for name in ("letter", "pipe"):
        with pytest.raises(server.TrackingRefused, match=f"{name} is not an SQLite database. Next: give another file"):
            server.check_server(f"sqlite:///{tmp_path}/{name}")
    (tmp_path / "empty").touch()
    with closing(sqlite3.connect(tmp_path / "real")) as database:
        database.execute("create table a (b)")
    for name in ("empty", "real", "new"):
        server.check_server(f"sqlite:///{tmp_path}/{name}")


@pytest.mark.parametrize("scheme", ["sqlite", "sqlite+pysqlite"])
def test_a_folder_in_place_of_the_database_is_refused_at_once(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(
        server.TrackingRefused, match=r"is a folder.*give the database's file, as in sqlite.*/mlflow.db"
    ):
        server.check_server(f"{scheme}:///{tmp_path}?timeout=5")
    server.check_server(f"{scheme}:///{tmp_path}/mlflow.db")


@pytest.mark.parametrize(("timed_out", "tries"), [(False, 3), (True, 1)])
def test_a_question_is_asked_again_at_once_unless_no_answer_came_in_time(
    timed_out: bool, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def question(answered_at: int) -> int:
        asked.append(1)
        if len(asked) < answered_at:
            raise TrackingUnavailable("500", timed_out=timed_out)
        return 7

    client = server.PatientClient("http://127.0.0.1:1", "")
    monkeypatch.setattr(client, "request", lambda upload_bytes: nullcontext())
    assert client.ask(lambda _: question(tries)) == 7
    asked.clear()
    with pytest.raises(TrackingUnavailable, match="500"):
        client.ask(lambda _: question(tries + 1))
    assert len(asked) == tries
