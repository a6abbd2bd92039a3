"""Whom the user's credentials are sent to, and whom not: a run's folder may name a stranger's server."""

from __future__ import annotations

import gc
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.folders import end, make_folder
from tests.support.mlflow_server import answering
from tracking.base.secrets import strip_credentials
from tracking.cli import parser
from tracking.store import server
from tracking.store.mirror.artifact_uploads import ArtifactUploads
from tracking.store.mirror.mirror import Mirror
from tracking.store.mirror.state import MirrorState
from tracking.store.server import PatientClient, TrackingRefused, connection, recipients, stores

pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Close what MLflow's sessions leave open here, where its warnings are ignored, and not in the next test."""
    yield
    gc.collect()


@contextmanager
def redirecting(target: str) -> Iterator[str]:
    """A server that sends everybody on to another address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.send_response(307)
            self.send_header("Location", target + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()


@pytest.fixture(params=["password", "token", "file", "netrc"])
def credentials(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The user has credentials of a kind; what a server that may have them sees."""
    if request.param == "password":
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "alice")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "Pa55word")
    elif request.param == "token":
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken-4711")
    elif request.param == "file":
        (tmp_path / ".mlflow").mkdir()
        stored = "[mlflow]\nmlflow_tracking_username = alice\nmlflow_tracking_password = Pa55word\n"
        (tmp_path / ".mlflow/credentials").write_text(stored)
    else:
        (tmp_path / ".netrc").write_text("default login alice password Pa55word\n")
    return "Bearer t0ken-4711" if request.param == "token" else "Basic YWxpY2U6UGE1NXdvcmQ="


def test_a_folder_s_server_is_shown_no_credentials_until_an_option_names_it(
    credentials: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mine.example.org")
    with answering(401) as (uri, headers):
        folder = make_folder(tmp_path, uri)
        end(folder)
        assert parser.execute(["sync", str(folder)]) == 1
        assert headers
        assert set(headers) == {None}
        said = capsys.readouterr().out
        if "netrc" not in {path.name.strip(".") for path in tmp_path.iterdir()}:
            assert f"failed: {folder} TrackingRefused: {uri}: " in said
            assert "you have not named this server, only the run's folder has" in said
            assert f"python -m tracking sync --to {uri} FOLDER" in said
        headers.clear()
        assert parser.execute(["sync", "--to", uri, str(folder)]) == 1
        assert set(headers) == {credentials}


def test_the_server_of_the_environment_is_shown_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken-4711")
    with answering(401) as (uri, headers):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri + "/")
        with pytest.raises(TrackingRefused, match="asks for a user"):
            Mirror(make_folder(tmp_path, uri)).step()
        assert set(headers) == {"Bearer t0ken-4711"}


def test_nobody_is_shown_them_over_plain_http_but_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken-4711")
    monkeypatch.setenv("no_proxy", "*")
    options = {"headers": {"Authorization": "Bearer t0ken-4711", "Accept": "a", "X-Plugins": "t0ken"}, "cert": "a.pem"}
    for uri in ("http://team.example.org:5000", "http://127.0.0.1.example.org", "http://localhost@example.org"):
        server.option_uri(uri)
        assert "in plain HTTP. Give an https:// address" in str(recipients.why_withheld(uri))
        url, left = recipients.guard_request(uri.replace("//", "//me:Pa55word@", 1), options)
        assert "Pa55word" not in url
        assert left["headers"] == {"Accept": "a"}
        assert left["cert"] is None
    for uri in ("https://team.example.org", "http://127.0.0.1:5000", "http://[::1]:5000", "http://localhost"):
        server.option_uri(uri)
        assert recipients.guard_request(uri, options)[1]["headers"] == options["headers"]
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv("http_proxy", "http://proxy.example.org:8080")
    monkeypatch.setenv("NO_PROXY", "")
    assert recipients.why_withheld("http://localhost")


def test_a_redirection_to_another_server_is_not_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken-4711")
    with answering(200) as (stranger, headers), redirecting(stranger) as uri:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        with pytest.raises(recipients.Redirected, match="give that address if it is your server"):
            connection.request(uri, "GET", "version")
        with pytest.raises(server.TrackingUnavailable, match="to another server, " + stranger):
            Mirror(make_folder(tmp_path, uri)).step()
        assert headers == []


@pytest.mark.parametrize(
    "uri",
    [
        "https://evil.example.org/@mine.example.org", "https://evil.example.org\\@mine.example.org",
        "https://mine.example.org@evil.example.org", "https://mine.example.org:8443", "http://mine.example.org",
        "https://mine.example.org.", " https://evil.example.org#@mine.example.org", "https://mine.example.org:pw@e.org",
    ],
)  # fmt: skip
def test_an_address_that_looks_like_the_user_s_is_another_server(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mine.example.org")
    assert recipients.why_withheld(uri)
    assert recipients.why_withheld("HTTPS://me:pw@Mine.example.org:443/path") is None
    assert strip_credentials("https://evil.example.org/@mine.example.org").startswith("https://evil")


@contextmanager
def changing_its_mind(*locations: str) -> Iterator[str]:
    """A server that says of a run that its artifacts are here and, when asked again, there; it takes every file."""
    asked = iter(locations)

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            body: dict[str, object] = {}
            if "/runs/get" in self.path:
                info = {"run_id": "0a1b", "run_uuid": "0a1b", "experiment_id": "1", "status": "RUNNING"}
                body = {"run": {"info": info | {"artifact_uri": next(asked)}, "data": {}}}
            content = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = answer

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()


def test_a_server_that_names_another_place_when_asked_again_gets_no_file_there(tmp_path: Path) -> None:
    ssh = tmp_path / ".ssh"
    ssh.mkdir()
    with changing_its_mind("mlflow-artifacts:/1/0a1b/artifacts", *8 * [f"file://{ssh}"]) as uri:
        folder = make_folder(tmp_path, uri)
        (folder / "authorized_keys").write_text("ssh-ed25519 of a stranger")
        lacks = ArtifactUploads(folder, PatientClient(uri, "")).send("0a1b", MirrorState(uri), lambda: None)
    assert "the file authorized_keys" in lacks  # the server's list is empty
    assert not list(ssh.iterdir())


def test_artifacts_go_nowhere_that_a_stranger_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = f"sqlite:///{tmp_path}/mlflow.db"
    for uri, location in (
        ("http://127.0.0.1:1", f"file://{tmp_path}/.ssh"), (database, f"file://{tmp_path}/mlartifacts/../.ssh"),
        (database, str(tmp_path / ".ssh")), ("http://127.0.0.1:1", "s3://bucket/a"), (database, "dbfs:/a"),
    ):  # fmt: skip
        with pytest.raises(TrackingRefused, match="it wants artifacts written to"):
            stores.check_location(uri, location)
    stores.check_location(database, f"file://{tmp_path}/mlartifacts/1/artifacts")
    stores.check_location("http://127.0.0.1:1", "mlflow-artifacts:/1/a/artifacts")
    (tmp_path / "mlartifacts").rmdir()
    (tmp_path / "mlartifacts").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(TrackingRefused):
        stores.check_location(database, f"file://{tmp_path}/mlartifacts/.ssh")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    stores.check_location(database, "s3://bucket/a")


@pytest.mark.parametrize("uri", ["postgresql://evil.example.org/db", "databricks://a", "mysql+pymysql://h/d", "x://a"])
def test_a_stranger_s_database_is_not_even_reached(uri: str, tmp_path: Path) -> None:
    with pytest.raises(TrackingRefused, match="you have not named this store"):
        Mirror(make_folder(tmp_path, uri)).step()


def test_the_option_takes_no_password(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_folder(tmp_path, "https://a.example.org")
    assert parser.execute(["sync", "--to", "https://me:Pa55word@b.example.org", str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("refused: --to=***: contains a password")
    assert "Pa55word" not in said
