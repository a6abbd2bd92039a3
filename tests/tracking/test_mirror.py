"""The mirror against a real MLflow server over SQLite, which one test kills and starts again."""

from __future__ import annotations

import http.server
import json
import math
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tracking.mlflow_server import MlflowServer
from tracking import mirror, run_folder
from tracking.journal import Journal
from tracking.mirror import Mirror, TrackingRefused, TrackingUnavailable, batches, check_server
from tracking.sync import MirrorThread, sync

# MLflow's dependencies use what others of them deprecate; our own warnings are none of these.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

REPO = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with MlflowServer(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("MLFLOW_TRACKING")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))  # no ~/.mlflow/credentials
    for name, value in mirror.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def make_folder(root: Path, uri: str, name: str = "run", **info: object) -> Path:
    folder = run_folder.create(root, name)
    run_folder.write_json(folder / run_folder.RUN, run_folder.RunInfo(name, "tests", uri, **info))  # type: ignore[arg-type]
    run_folder.write_text(folder / run_folder.CONFIG, "seed: 1\n")
    return folder


def write_rows(folder: Path, steps: range, **values: float) -> None:
    journal = Journal(folder / run_folder.JOURNAL)
    for step in steps:
        journal.metrics({"train/loss": 1 / (step + 1), "train/samples": step * 32.0, **values}, step)
    journal.close()


def end(folder: Path, status: str = "finished") -> None:
    failure = run_folder.Failure("error", "boom") if status == "failed" else None
    run_folder.write_json(folder / run_folder.RESULT, run_folder.Result(status, failure=failure))


def expected_rows(folder: Path) -> list[tuple[str, float, int, int]]:
    found = set()
    for batch in batches(folder / run_folder.JOURNAL, 0):
        for key, value, time_ms, step in batch.metrics:
            stored = 0.0 if math.isnan(value) else max(-sys.float_info.max, min(sys.float_info.max, value))
            found.add((key, stored, time_ms, step, math.isnan(value)))
    return sorted(found)


def query(server: MlflowServer, sql: str, *values: object) -> list[tuple]:
    with sqlite3.connect(f"file:{server.database}?mode=ro", uri=True, timeout=20) as database:
        rows = database.execute(sql, values).fetchall()
    database.close()
    return rows


def stored_rows(server: MlflowServer, run_id: str | None) -> list[tuple]:
    rows = query(server, "select key, value, timestamp, step, is_nan from metrics where run_uuid = ?", run_id)
    return sorted((*row[:4], bool(row[4])) for row in rows)


def tags_of(server: MlflowServer, run_id: str | None) -> dict[str, str]:
    return dict(query(server, "select key, value from tags where run_uuid = ?", run_id))


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
    assert thread.close(wait_sec=60), thread.status
    assert stored_rows(server, thread.mirror.run_id) == expected_rows(folder)
    assert len(expected_rows(folder)) == 8400


def test_a_row_is_visible_within_three_seconds(server: MlflowServer, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, server.uri)
    thread = MirrorThread(folder).start()
    wait_for(lambda: thread.mirror.run_id)
    write_rows(folder, range(1))
    start = time.monotonic()
    wait_for(lambda: stored_rows(server, thread.mirror.run_id))
    assert time.monotonic() - start < 3
    end(folder)
    assert thread.close(wait_sec=30)


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
    create = shipper._client.create_run

    def lose_the_answer(*arguments: object) -> None:
        create(*arguments)
        raise ConnectionResetError("lost")

    shipper._client.create_run = lose_the_answer  # type: ignore[method-assign, assignment]
    with pytest.raises(TrackingUnavailable, match="lost"):
        shipper.step()
    assert Mirror(folder).run_id is None
    again = Mirror(folder)
    again.step()
    assert runs_with_uid(server, again) == [(again.run_id, "active")]


def test_a_creation_that_lands_late_is_removed_at_the_end(server: MlflowServer, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, server.uri)
    shipper = Mirror(folder)
    shipper.state.num_creations = 1
    shipper._save()
    shipper.step()
    late = shipper._client.create_run(shipper.experiment_id or "", tags={mirror.UID_TAG: shipper.info.uid})
    end(folder)
    write_rows(folder, range(1))
    shipper.finish()
    assert set(runs_with_uid(server, shipper)) == {(shipper.run_id, "active"), (late.info.run_id, "deleted")}


def test_a_sweep_is_synced_with_its_jobs_and_syncing_again_changes_nothing(
    server: MlflowServer, tmp_path: Path
) -> None:
    parent = make_folder(tmp_path, server.uri, "sweep", kind="sweep")
    jobs = [make_folder(parent, server.uri, status, parent="..") for status in ("failed", "finished", "killed")]
    for job in jobs:
        write_rows(job, range(3))
        end(job, job.name)
    end(parent)
    running = make_folder(tmp_path, server.uri, "still")
    write_rows(running, range(2))
    told: list[object] = []
    folders = [*run_folder.run_folders(tmp_path)]
    with_result = threading.Thread(target=sync, args=([*folders, running],))
    with_result.start()  # two at once
    outcomes = sync(folders, progress=told.append)
    with_result.join()
    assert told == outcomes
    assert {outcome.folder.name: outcome.state for outcome in outcomes} == {
        "sweep": "complete", "failed": "complete", "finished": "complete", "killed": "complete", "still": "running",
    }  # fmt: skip
    for job in jobs:
        shipped = Mirror(job)
        [(status, end_time, start_time, name)] = query(
            server, "select status, end_time, start_time, name from runs where run_uuid = ?", shipped.run_id
        )
        assert (status, name, start_time) == (job.name.upper(), job.name, shipped.info.created_ms)
        assert end_time == expected_rows(job)[-1][2]
        assert tags_of(server, shipped.run_id)["mlflow.parentRunId"] == Mirror(parent).run_id
        assert len(runs_with_uid(server, shipped)) == 1
        assert (server.folder / "served" / "1" / str(shipped.run_id) / "artifacts" / "config.yaml").exists()
    assert query(server, "select status from runs where run_uuid = ?", Mirror(running).run_id) == [("RUNNING",)]
    before = dump(server)
    assert [outcome.state for outcome in sync(folders)] == [outcome.state for outcome in outcomes]
    assert dump(server) == before


def test_a_folder_follows_to_another_server_and_changed_files_are_uploaded_again(
    server: MlflowServer, tmp_path: Path
) -> None:
    folder = make_folder(tmp_path, "http://127.0.0.1:9")
    write_rows(folder, range(2))
    end(folder)
    [outcome] = sync([folder], tracking_uri=server.uri)
    assert outcome.state == "complete"
    shipper = Mirror(folder, server.uri)
    run_id = shipper.run_id
    run_folder.write_text(folder / "summary.csv", "a,b\n")
    assert not shipper.complete
    shipper.finish()
    assert shipper.complete
    database = f"sqlite:///{server.database}"  # another way to the same runs: found again by the uid
    Mirror(folder, database).finish()
    assert Mirror(folder, database).run_id == run_id
    assert stored_rows(server, run_id) == expected_rows(folder)


def test_artifacts_of_a_database_lie_beside_it_nothing_is_printed_and_the_ui_serves_them(
    server: MlflowServer, tmp_path: Path
) -> None:
    uri = f"sqlite:///{server.database}"
    folder = make_folder(tmp_path, uri, "direct")
    info = run_folder.read_info(folder)
    info.experiment = "direct"
    run_folder.write_json(folder / run_folder.RUN, info)
    write_rows(folder, range(1))
    end(folder)
    code = (
        "import sys, tracking.mirror, tracking.sync, tracking.system_metrics, pathlib\n"
        "assert 'mlflow' not in sys.modules and 'requests' not in sys.modules\n"
        "assert tracking.sync.sync([pathlib.Path(sys.argv[1])])[0].state == 'complete'"
    )
    environ = {**os.environ, "PYTHONPATH": str(REPO)}
    done = subprocess.run(
        [sys.executable, "-c", code, folder], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    run_id = Mirror(folder).run_id
    assert (server.folder / "mlartifacts" / str(run_id) / "artifacts" / "config.yaml").read_text() == "seed: 1\n"
    with urllib.request.urlopen(f"{server.uri}/get-artifact?path=config.yaml&run_uuid={run_id}") as answer:
        assert answer.read() == b"seed: 1\n"


def test_what_is_large_is_split_and_what_is_long_is_cut_visibly(server: MlflowServer, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, server.uri)
    journal = Journal(folder / run_folder.JOURNAL)
    journal.metrics({f"key {i}": i for i in range(1500)}, 1)
    journal.params({f"p{i}": "é" * 7000 for i in range(130)})
    journal.tags({f"t{i}": "x" * 9000 for i in range(101)})
    journal.event("run_start")
    shipped = list(batches(folder / run_folder.JOURNAL, 0))
    assert [len(batch.metrics) for batch in shipped][:2] == [1000, 500]
    assert all(len(batch.params) <= 100 and len(batch.tags) <= 100 and len(batch) <= 1000 for batch in shipped)
    assert shipped[-1].offset == (folder / run_folder.JOURNAL).stat().st_size
    assert shipped[0].offset == 0  # the first record is not yet shipped whole
    shipper = Mirror(folder)
    assert shipper.step() == 1500 + 130 + 101  # MLflow itself refuses a request above its limits
    params = query(server, "select value from params where run_uuid = ?", shipper.run_id)
    assert params == [("é" * 5999 + "…",)] * 130
    assert tags_of(server, shipper.run_id)["t100"] == "x" * 7999 + "…"


@pytest.mark.parametrize("key", ["throughput(tps)", "a" * 251, "a//b", "/a", "..", "a:b", ""])
def test_a_key_that_mlflow_cannot_hold_is_named(tmp_path: Path, key: str) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.metrics({key: 1.0})
    with pytest.raises(ValueError, match="cannot take the key") as caught:
        list(batches(tmp_path / "journal.jsonl", 0))
    assert repr(key) in str(caught.value)


def test_values_that_mlflow_cannot_hold_are_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a")
    journal.metrics({"loss": "high"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="'loss' is no number: 'high'"):
        list(batches(tmp_path / "a", 0))
    journal = Journal(tmp_path / "b")
    journal.params({"seed": 1})
    journal.params({"seed": 2})
    with pytest.raises(ValueError, match="'seed' is '2' after '1'"):
        list(batches(tmp_path / "b", 0))


def test_a_bad_row_ends_the_thread_with_a_status_and_not_the_training(server: MlflowServer, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, server.uri)
    Journal(folder / run_folder.JOURNAL).metrics({"throughput(tps)": 1.0})
    end(folder)
    thread = MirrorThread(folder).start()
    assert not thread.close(wait_sec=30)
    assert "throughput(tps)" in thread.status


def test_credentials_are_used_and_never_written(
    server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"http://someone:pa55word@127.0.0.1:{server.port}"
    folder = make_folder(tmp_path, mirror.strip_credentials(secret))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", secret)
    write_rows(folder, range(1))
    end(folder)
    Mirror(folder).finish()
    assert Mirror(folder).complete
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"pa55word" not in written + server.database.read_bytes()
    with answering(503) as (uri, headers):
        with_password = uri.replace("//", "//someone:pa55word@")
        for action in (lambda: Mirror(folder, with_password).step(), lambda: check_server(with_password)):
            with pytest.raises(TrackingUnavailable) as caught:
                action()
            assert uri in str(caught.value)
            assert "pa55word" not in str(caught.value)
        assert set(headers) == {"Basic c29tZW9uZTpwYTU1d29yZA=="}


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, TrackingRefused), (403, TrackingRefused), (429, TrackingUnavailable), (500, TrackingUnavailable)],
)
def test_a_refusal_is_told_from_an_outage(
    tmp_path: Path, status: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken")
    with answering(status) as (uri, headers):
        folder = make_folder(tmp_path, uri)
        for action in (Mirror(folder).step, lambda: check_server(uri)):
            with pytest.raises(error) as caught:
                action()
            assert uri in str(caught.value)
            assert ("MLFLOW_TRACKING_USERNAME" in str(caught.value)) == (error is TrackingRefused)
        assert set(headers) == {"Bearer t0ken"}
    with pytest.raises(TrackingUnavailable):
        check_server(uri)  # nobody listens any more


def test_check_server_passes_a_server_that_answers_and_ignores_databases(server: MlflowServer) -> None:
    check_server(server.uri)
    check_server("sqlite:////nowhere/mlflow.db")


def test_a_server_that_hangs_costs_one_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setattr(mirror, "CHECK_TIMEOUT_SEC", 1)
    import mlflow  # noqa: F401  the import is no part of the request

    with socket.create_server(("127.0.0.1", 0)) as hanging:
        uri = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        folder = make_folder(tmp_path, uri)
        for action in (Mirror(folder).step, lambda: check_server(uri)):
            start = time.monotonic()
            with pytest.raises(TrackingUnavailable):
                action()
            assert time.monotonic() - start < 3
        end(folder)
        thread = MirrorThread(folder).start()
        thread.ended()
        wait_for(lambda: thread.status)
        start = time.monotonic()
        assert not thread.close(wait_sec=0.5)
        assert time.monotonic() - start < 3


def test_links_lead_to_routes_that_this_mlflow_has() -> None:
    import mlflow

    [script] = (Path(mlflow.__file__).parent / "server/js/build/static/js").glob("main.*.js")
    routes = script.read_text(encoding="utf-8")
    assert '"/compare-runs"' in routes
    assert "?runs=${JSON.stringify(e)}&experiments=${JSON.stringify(t)}" in routes
    assert '"/experiments/:experimentId/runs/:runUuid"' in routes
    assert mirror.run_link("http://u:p@host:1/", "3", "ab") == "http://host:1/#/experiments/3/runs/ab"
    assert mirror.run_link("sqlite:////a/mlflow.db", "3", "ab") == "http://127.0.0.1:5000/#/experiments/3/runs/ab"
    assert mirror.compare_link("http://host:1", "3", ["a", "b"]) == (
        "http://host:1/#/compare-runs?runs=%5B%22a%22%2C%22b%22%5D&experiments=%5B%223%22%5D"
    )


def test_uris(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert mirror.default_uri() == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://u:p@host")
    assert mirror.default_uri() == "http://u:p@host"
    assert mirror.absolute_uri("sqlite:///x.db?timeout=5") == f"sqlite:///{tmp_path}/x.db?timeout=5"
    assert mirror.absolute_uri("sqlite:////x.db") == "sqlite:////x.db"
    assert mirror.ui_command("http://host") is None
    assert mirror.ui_command("sqlite:////a b/mlflow.db") == (
        "mlflow ui --backend-store-uri 'sqlite:////a b/mlflow.db' --port 5000"
    )
    for uri, stripped in {
        "http://u:p@ss@host:1/x": "http://host:1/x",
        "postgresql://u:p@host/db": "postgresql://host/db",
        "postgresql://host/db?user=u&password=p&sslmode=require": "postgresql://host/db?sslmode=require",
        "sqlite:////a@b/mlflow.db": "sqlite:////a@b/mlflow.db",
        "databricks": "databricks",
    }.items():
        assert mirror.strip_credentials(uri) == stripped


def forget(shipper: Mirror, **changes: object) -> None:
    for name, value in changes.items():
        setattr(shipper.state, name, value)
    shipper._save()


def runs_with_uid(server: MlflowServer, shipper: Mirror) -> list[tuple]:
    sql = "select runs.run_uuid, lifecycle_stage from runs join tags using (run_uuid) where key = ? and value = ?"
    return query(server, sql, mirror.UID_TAG, shipper.info.uid)


def dump(server: MlflowServer) -> list[list[tuple]]:
    return [query(server, f"select * from {table} order by 1, 2") for table in ("runs", "tags", "params", "metrics")]


def wait_for(condition: object, timeout_sec: float = 60) -> None:
    deadline = time.monotonic() + timeout_sec
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


class answering:
    """A server that answers every request with one status, and notes the Authorization headers."""

    def __init__(self, status: int) -> None:
        headers: list[str | None] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                headers.append(self.headers["Authorization"])
                self.rfile.read(int(self.headers["Content-Length"] or 0))
                body = json.dumps({"message": "no"}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer

            def log_message(self, *_: object) -> None:
                """Keep the test's output clean."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._headers = headers

    def __enter__(self) -> tuple[str, list[str | None]]:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}", self._headers

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
