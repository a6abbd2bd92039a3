"""Folders that were copied, and states of other folders: a run is known by its uid, and there is one of each."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.commands import HANGS_SEC
from tests.support.folders import end, make_folder, write_rows
from tests.support.mlflow_server import MlflowServer
from tests.support.rows import expected_rows, runs_with_uid, stored_rows, tags_of
from tracking.jobs.follow.sync import sync
from tracking.record import documents, run_folder
from tracking.store.mirror import mlflow_run
from tracking.store.mirror.mirror import UID_TAG, Mirror

pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def ended_run(root: Path, uri: str, name: str) -> Path:
    folder = make_folder(root, uri, name)
    write_rows(folder, range(5))
    end(folder)
    return folder


def active(server: MlflowServer, folder: Path) -> list[str]:
    return [run for run, stage in runs_with_uid(server, run_folder.read_info(folder).uid) if stage == "active"]


def test_a_copy_of_a_folder_that_was_never_synced_is_the_same_run(server: MlflowServer, tmp_path: Path) -> None:
    folder = ended_run(tmp_path, server.uri, "run")
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert [outcome.state for outcome in sync([folder, copy])] == ["complete", "complete"]
    assert len(runs_with_uid(server, run_folder.read_info(folder).uid)) == 1
    assert Mirror(copy).run_id == Mirror(folder).run_id
    assert stored_rows(server, Mirror(folder).run_id) == expected_rows(folder)


def test_two_copies_that_are_synced_at_once_end_in_one_run(
    server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both look before either has made a run, so that both make one."""
    folder = ended_run(tmp_path, server.uri, "run")
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    both, look = threading.Barrier(2, timeout=HANGS_SEC), mlflow_run.find_runs
    looked: set[int] = set()

    def look_together(*arguments: object) -> object:
        answer = look(*arguments)  # type: ignore[arg-type]
        if threading.get_ident() not in looked:
            looked.add(threading.get_ident())
            both.wait()
        return answer

    monkeypatch.setattr(mlflow_run, "find_runs", look_together)
    states: list[str] = []
    threads = [
        threading.Thread(target=lambda of=of: states.extend(outcome.state for outcome in sync([of])))
        for of in (folder, copy)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    assert len(runs_with_uid(server, run_folder.read_info(folder).uid)) > 1
    assert {outcome.state for outcome in sync([folder, copy])} == {"complete"}  # whatever had to be tried again
    [run_id] = active(server, folder)
    assert {Mirror(folder).run_id, Mirror(copy).run_id} == {run_id}
    assert stored_rows(server, run_id) == expected_rows(folder)


def test_the_state_of_another_folder_is_not_believed(server: MlflowServer, tmp_path: Path) -> None:
    first, second = (ended_run(tmp_path, server.uri, name) for name in ("first", "second"))
    write_rows(second, range(9), other=1.0)
    Mirror(first).step()
    before = stored_rows(server, Mirror(first).run_id)
    shutil.copy(first / run_folder.MIRROR, second / run_folder.MIRROR)
    assert sync([second])[0].state == "complete"
    assert Mirror(second).run_id != Mirror(first).run_id
    assert stored_rows(server, Mirror(first).run_id) == before
    assert stored_rows(server, Mirror(second).run_id) == expected_rows(second)


def test_a_run_that_was_taken_back_is_gone_on_with_under_the_one_that_is_left(
    server: MlflowServer, tmp_path: Path
) -> None:
    folder = ended_run(tmp_path, server.uri, "run")
    shipper = Mirror(folder)
    shipper.step()
    with shipper._client.request() as client:
        client.delete_run(shipper.run_id)
        left = client.create_run(shipper.experiment_id, tags={UID_TAG: shipper.info.uid}).info.run_id
    assert sync([folder])[0].state == "complete"
    assert Mirror(folder).run_id == left
    assert stored_rows(server, left) == expected_rows(folder)


def test_a_run_that_a_copy_outside_of_its_sweep_has_made_is_linked_to_the_sweep_all_the_same(
    server: MlflowServer, tmp_path: Path
) -> None:
    sweep = make_folder(tmp_path, server.uri, "sweep", kind="sweep")
    end(sweep)
    job = ended_run(sweep, server.uri, "job")
    documents.write_json(job / run_folder.RUN, replace(run_folder.read_info(job), parent=run_folder.PARENT))
    alone = tmp_path / "alone"
    shutil.copytree(job, alone)
    assert {outcome.state for outcome in sync([alone]) + sync([sweep, job])} == {"complete"}
    assert active(server, job) == [Mirror(alone).run_id]
    assert tags_of(server, Mirror(job).run_id)["mlflow.parentRunId"] == Mirror(sweep).run_id
