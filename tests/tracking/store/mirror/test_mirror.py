"""The mirror against a real MLflow server over SQLite: what arrives there, in which form, and what is told of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from tests.support.commands import HANGS_SEC
from tests.support.folders import end, make_folder, wait_for, write_rows
from tests.support.mlflow_server import MlflowServer, answering
from tests.support.rows import expected_rows, query, runs_with_uid, stored_rows, tags_of
from tracking.base.secrets import strip_credentials
from tracking.jobs.follow.mirror_thread import MirrorThread
from tracking.jobs.follow.sync import sync
from tracking.record import documents, run_folder
from tracking.record.journal import Journal
from tracking.store.mirror.log_batches import log_batches
from tracking.store.mirror.mirror import Mirror
from tracking.store.server.database import open_client
from tracking.store.server.server_errors import TrackingRefused, TrackingUnavailable, check_server

# Only MLflow's dependencies raise these warnings: some use what others deprecate.
pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

REPO = Path(__file__).parents[4]


def test_a_row_is_visible_while_the_run_goes_on(server: MlflowServer, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, server.uri)
    thread = MirrorThread(folder).start()
    wait_for(lambda: thread.mirror.run_id)
    write_rows(folder, range(1))
    wait_for(lambda: stored_rows(server, thread.mirror.run_id))
    end(folder)
    assert thread.close(wait_sec=HANGS_SEC)


def test_a_sweep_is_synced_with_its_jobs_and_syncing_again_changes_nothing(
    server: MlflowServer, tmp_path: Path
) -> None:
    parent = make_folder(tmp_path, server.uri, "sweep", kind="sweep")
    jobs = [make_folder(parent, server.uri, status, parent="..") for status in ("failed", "finished", "killed")]
    for job in jobs:
        journal = Journal(job / run_folder.JOURNAL)
        journal.params({"dataset": "digits"})
        journal.event("train_samples", 1150)
        journal.close()
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
        failure = (run_folder.read_result(job) or run_folder.Result("")).failure
        assert end_time == (failure.time_ms if failure else expected_rows(job)[-1][2])
        assert tags_of(server, shipped.run_id)["mlflow.parentRunId"] == Mirror(parent).run_id
        assert len(runs_with_uid(server, shipped.info.uid)) == 1
        assert len([*server.folder.glob(f"served/*/{shipped.run_id}/artifacts/config.yaml")]) == 1
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
    documents.write_text(folder / "summary.csv", "a,b\n")
    assert not shipper.complete
    shipper.finish()
    assert shipper.complete
    another = server.uri.replace("127.0.0.1", "localhost")  # another way to the same runs: found again by the uid
    Mirror(folder, another).finish()
    assert Mirror(folder, another).run_id == run_id
    assert stored_rows(server, run_id) == expected_rows(folder)


def test_artifacts_of_a_database_lie_beside_it_nothing_is_printed_and_the_ui_serves_them(
    server: MlflowServer, tmp_path: Path
) -> None:
    uri = f"sqlite:///{server.database}"
    folder = make_folder(tmp_path, uri, "direct")
    info = run_folder.read_info(folder)
    info.experiment = "direct"
    documents.write_json(folder / run_folder.RUN, info)
    write_rows(folder, range(1))
    end(folder)
    code = (
        "import sys, pathlib, tracking.store.mirror.mirror, tracking.jobs.follow.sync\n"
        "import tracking.machine.usage.system_metrics\n"
        "assert 'mlflow' not in sys.modules and 'requests' not in sys.modules\n"
        "assert tracking.jobs.follow.sync.sync([pathlib.Path(sys.argv[1])])[0].state == 'complete'"
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
    shipped = list(log_batches(folder / run_folder.JOURNAL, 0))
    assert [len(batch.metrics) for batch in shipped][:2] == [1000, 500]
    assert all(len(batch.params) <= 100 and len(batch.tags) <= 100 and len(batch) <= 1000 for batch in shipped)
    assert shipped[-1].offset == (folder / run_folder.JOURNAL).stat().st_size
    assert shipped[0].offset == 0  # the first record is not yet shipped whole
    shipper = Mirror(folder)
    num_rows = 1500 + 130 + 101 + 1  # the last one is the tag of run_start
    assert shipper.step() == num_rows  # MLflow itself refuses a request above its limits
    params = query(server, "select value from params where run_uuid = ?", shipper.run_id)
    assert params == [("é" * 5999 + "…",)] * 130
    assert tags_of(server, shipper.run_id)["t100"] == "x" * 7999 + "…"


def test_a_value_that_mlflow_cannot_hold_is_named_and_holds_up_nothing(server: MlflowServer, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, server.uri)
    Journal(folder / run_folder.JOURNAL).metrics({"throughput(tps)": 1.0, "loss": 2.0})
    end(folder)
    [outcome] = sync([folder])
    assert outcome.state == "complete"
    assert "throughput(tps)" in outcome.message
    assert [row[:2] for row in stored_rows(server, Mirror(folder).run_id)] == [("loss", 2.0)]


def test_a_param_that_changes_later_is_named_and_holds_up_nothing(server: MlflowServer, tmp_path: Path) -> None:
    """MLflow refuses the whole request in which a param has another value than before."""
    folder = make_folder(tmp_path, server.uri)
    journal = Journal(folder / run_folder.JOURNAL)
    journal.params({"lr": 0.1})
    Mirror(folder).step()
    journal.params({"lr": 0.2, "seed": 1})
    journal.metrics({"loss": 2.0})
    journal.close()
    end(folder)
    for again in (False, True):
        [outcome] = sync([folder], again=again)
        assert outcome.state == "complete", outcome.message
        assert "'lr' is '0.2' after '0.1'" in outcome.message
    run_id = Mirror(folder).run_id
    assert sorted(query(server, "select key, value from params where run_uuid = ?", run_id)) == [
        ("lr", "0.1"), ("seed", "1"),
    ]  # fmt: skip
    assert stored_rows(server, run_id) == expected_rows(folder)


def test_a_param_that_somebody_else_has_set_is_named_and_holds_up_nothing(server: MlflowServer, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, server.uri)
    shipper = Mirror(folder)
    shipper.step()
    open_client(server.uri).log_param(str(shipper.run_id), "lr", "0.7")
    journal = Journal(folder / run_folder.JOURNAL)
    journal.params({f"p{number}": number for number in range(20)} | {"lr": 0.1, "seed": 1})
    journal.tags({"env.torch": "2.11"})
    write_rows(folder, range(401))
    for again in (False, True):
        end(folder)
        [outcome] = sync([folder], again=again)
        assert outcome.state == "complete", outcome.message
        assert "'lr' is '0.1', and somebody else has set it to '0.7' on the server" in outcome.message
        write_rows(folder, range(401, 403))
    sync([folder])
    params = dict(query(server, "select key, value from params where run_uuid = ?", shipper.run_id))
    assert params == {f"p{number}": str(number) for number in range(20)} | {"lr": "0.7", "seed": "1"}
    assert tags_of(server, shipper.run_id)["env.torch"] == "2.11"
    assert stored_rows(server, shipper.run_id) == expected_rows(folder)


def test_a_run_that_is_deleted_is_said_to_be_and_nothing_is_left_out(server: MlflowServer, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, server.uri)
    shipper = Mirror(folder)
    shipper.step()
    open_client(server.uri).delete_run(str(shipper.run_id))
    Journal(folder / run_folder.JOURNAL).params({"lr": 0.1})
    with pytest.raises(TrackingRefused, match="active"):
        shipper.step()
    open_client(server.uri).restore_run(str(shipper.run_id))
    assert shipper.step() == 1
    assert (shipper.state.refused, shipper.state.left_out) == ([], [])


def test_a_run_that_was_resumed_leaves_the_mirror_of_its_earlier_attempt_nothing_to_do(
    server: MlflowServer, tmp_path: Path
) -> None:
    thread = MirrorThread(make_folder(tmp_path, server.uri)).start()
    began = time.monotonic()
    assert not thread.close(wait_sec=HANGS_SEC), "there is no result, whose upload would be complete"
    assert time.monotonic() - began < HANGS_SEC, "it has waited as long as it may"


def test_credentials_are_used_and_never_written(
    server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"http://someone:pa55word@127.0.0.1:{server.port}"
    folder = make_folder(tmp_path, strip_credentials(secret))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", secret)
    write_rows(folder, range(1))
    end(folder)
    Mirror(folder).finish()
    assert Mirror(folder).complete
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"pa55word" not in written + server.database.read_bytes()
    with answering(503) as (uri, headers):
        with_password = uri.replace("//", "//someone:pa55word@")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", with_password)
        for action in (lambda: Mirror(folder, with_password).step(), lambda: check_server(with_password)):
            with pytest.raises(TrackingUnavailable) as caught:
                action()
            assert uri in str(caught.value)
            assert "pa55word" not in str(caught.value)
        assert set(headers) == {"Basic c29tZW9uZTpwYTU1d29yZA=="}


def test_check_server_passes_a_server_that_answers_and_ignores_databases(server: MlflowServer) -> None:
    check_server(server.uri)
    check_server("sqlite:////nowhere/mlflow.db")


def dump(server: MlflowServer) -> list[list[tuple]]:
    tables = ("runs", "tags", "params", "metrics", "datasets", "inputs", "input_tags", "experiment_tags")
    return [query(server, f"select * from {table} order by 1, 2") for table in tables]
