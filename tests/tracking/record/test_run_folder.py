"""Run folders: private, never half-written, never overwritten."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from conf import schema
from tracking.record import documents, run_folder
from tracking.record.run_folder import Failure, Result, RunInfo


def test_a_taken_name_gets_a_number_and_the_folder_is_private(tmp_path: Path) -> None:
    folders = [run_folder.create(tmp_path / "runs", "vgg") for _ in range(3)]
    assert [folder.name for folder in folders] == ["vgg", "vgg-2", "vgg-3"]
    assert stat.S_IMODE(folders[0].stat().st_mode) == 0o700


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    documents.write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        documents.write_json(path, {"a": float("nan")})
    with pytest.raises(UnicodeEncodeError):
        documents.write_text(path, "half \ud800")  # fails while it is written
    assert documents.read_json(path) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_a_result_comes_back_as_it_was(tmp_path: Path) -> None:
    assert run_folder.read_result(tmp_path) is None
    result = Result("failed", {"world_size": 1.0}, {"accuracy": 0.9}, failure=Failure("oom", "too large", "trace", 3))
    documents.write_json(tmp_path / run_folder.RESULT, result)
    assert run_folder.read_result(tmp_path) == result


def test_the_journal_and_private_files_are_no_artifacts(tmp_path: Path) -> None:
    for name in ("journal.jsonl", "mirror.json", "run.json", ".mirror.lock", "config.yaml", "worker.log"):
        (tmp_path / name).touch()
    assert [path.name for path in run_folder.artifacts(tmp_path)] == ["config.yaml", "worker.log"]


def test_a_model_is_an_artifact_where_it_is_to_be_one(tmp_path: Path) -> None:
    config = schema.RunConfig(save_model="final")
    for uploaded in (False, True):
        config.tracking.upload_model = uploaded
        run_folder.write_config(tmp_path, config)
        (tmp_path / run_folder.MODEL).touch()
        assert ((tmp_path / run_folder.MODEL) in run_folder.artifacts(tmp_path)) is uploaded


def test_parents_come_before_their_children(tmp_path: Path) -> None:
    parent = run_folder.create(tmp_path, "sweep")
    child = run_folder.create(parent, "a-child")
    for folder, info in ((child, RunInfo("a", "e", "u", parent="..")), (parent, RunInfo("s", "e", "u", "sweep"))):
        documents.write_json(folder / run_folder.RUN, info)
    assert run_folder.run_folders(tmp_path) == [parent, child]
    assert run_folder.parent_of(child) == parent
    assert run_folder.parent_of(parent) is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / run_folder.RUN).write_text('{"na')
    with pytest.raises(ValueError, match=r"run\.json: is damaged \(.*\)\..*move its folder away"):
        run_folder.read_info(tmp_path)
