"""Files in a run's folder cannot lead reads or writes out of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.folders import end, make_folder, write_rows
from tracking.analysis.results import FolderRuns
from tracking.jobs.follow import unfinished
from tracking.jobs.follow.sync import sync
from tracking.record import Journal, WorkerLog, checkpoints, documents, failures, files, journal, run_folder, run_lock
from tracking.store.mirror.mirror import LOCK

TEXT = "the user's own\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside" / "private"
    path.parent.mkdir()
    path.write_text(TEXT)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = make_folder(tmp_path / "runs", f"sqlite:///{tmp_path}/mlflow.db")
    write_rows(folder, range(2))
    end(folder)
    return folder


def hold(folder: Path) -> None:
    with run_lock.hold(folder):
        pass


WRITERS: dict[str, Callable[[Path], object]] = {
    run_folder.JOURNAL: lambda folder: Journal(folder / run_folder.JOURNAL),
    run_folder.RUN_LOCK: hold,
    run_folder.RESERVE: run_folder.reserve,
    run_folder.WORKER_LOG: lambda folder: WorkerLog(folder / run_folder.WORKER_LOG),
}


@pytest.mark.parametrize("name", WRITERS)
def test_no_link_is_written_through(name: str, folder: Path, outside: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(outside)
    with pytest.raises(OSError, match="is a link, which is not followed"):
        WRITERS[name](folder)
    assert outside.read_text() == TEXT


def test_a_file_takes_the_place_of_a_link_and_of_its_temporary_file(folder: Path, outside: Path) -> None:
    for name in (run_folder.RESULT, f".{run_folder.RESULT}.{os.getpid()}.tmp"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(outside)
    end(folder)
    assert outside.read_text() == TEXT
    assert run_folder.read_result(folder)


def store_of(folder: Path) -> FolderRuns:
    store = FolderRuns([folder])
    store.find(["run"])
    return store


READERS: dict[str, Callable[[Path], object]] = {
    run_folder.RUN: run_folder.read_info,
    run_folder.RESULT: run_folder.read_result,
    run_folder.CONFIG: run_folder.read_config,
    run_folder.JOURNAL: lambda folder: list(journal.read(folder / run_folder.JOURNAL)),
    run_folder.WORKER_LOG: failures.last_words,
    run_folder.FINGERPRINT: lambda folder: store_of(folder).text(store_of(folder).find(["run"])[0], "fingerprint.json"),
}


@pytest.mark.parametrize("name", READERS)
def test_no_link_is_read(name: str, folder: Path, outside: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(outside)
    with pytest.raises(OSError, match="is a link, which is not followed"):
        READERS[name](folder)


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    (folder / run_folder.RESULT).unlink()
    os.mkfifo(folder / run_folder.RESULT)
    with pytest.raises(OSError, match="is not a regular file"):
        run_folder.read_result(folder)


def test_links_are_no_artifacts_no_runs_and_no_checkpoints(folder: Path, outside: Path) -> None:
    (folder / "id_rsa").symlink_to(outside)
    assert "id_rsa" not in {path.name for path in run_folder.artifacts(folder)}
    elsewhere = outside.parent / "epoch1.ckpt"
    elsewhere.touch()
    (folder / run_folder.CHECKPOINTS).symlink_to(outside.parent)
    with pytest.raises(OSError, match="is a link"):
        checkpoints.prune(folder)
    assert elsewhere.exists()
    assert outside.exists()
    (folder.parent / "linked").symlink_to(folder)
    assert run_folder.run_folders(folder.parent) == [folder]


def test_a_folder_of_runs_may_be_reached_by_a_link(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder.parent)
    assert run_folder.run_folders(link) == [folder]
    assert run_folder.read_info(link / folder.name).name == "run"


def test_a_file_that_is_lent_stays_the_same(folder: Path, outside: Path) -> None:
    path = folder / "note.txt"
    path.write_text("note")
    with files.pinned(path) as lent:
        path.unlink()
        path.symlink_to(outside)
        assert (lent.name, lent.read_text()) == ("note.txt", "note")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_sync_neither_empties_nor_uploads_what_links_lead_to(folder: Path, outside: Path) -> None:
    (folder / "id_rsa").symlink_to(outside)
    (folder / LOCK).symlink_to(outside)
    [outcome] = sync([folder])
    assert outcome.state == "failed"
    assert "is a link" in outcome.message
    assert outside.read_text() == TEXT
    (folder / LOCK).unlink()
    [outcome] = sync([folder])
    assert outcome.state == "complete", outcome.message
    uploaded = {path.name for path in (folder.parents[1] / "mlartifacts").rglob("*")}
    assert run_folder.RESULT in uploaded
    assert "id_rsa" not in uploaded


def test_marks_are_no_way_out(folder: Path, outside: Path) -> None:
    (folder.parent / unfinished.MARKS).symlink_to(outside.parent)
    unfinished.mark(folder)
    unfinished.unmark(folder.with_name(outside.name))
    assert [path.name for path in outside.parent.iterdir()] == [outside.name]


@pytest.mark.parametrize(
    ("name", "raised", "named"),
    [
        ("folder", None, "folder"),
        ("missing/file", None, "missing"),
        ("file", OSError(errno.ENOSPC, "No space left on device"), "file"),  # as a full disk's write
        ("file", OSError(errno.EACCES, "Permission denied", "source"), "source"),  # another file's, within the block
    ],
)
def test_an_error_names_the_file_that_was_to_be_written(
    tmp_path: Path, name: str, raised: OSError | None, named: str
) -> None:
    def write() -> None:
        with documents.replacing(tmp_path / name):
            if raised:
                raise raised

    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=rf"{named}'$"):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_write_on_a_read_only_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the temporary file beside it says nothing to a user."""

    def refuse(name: str, **_: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(OSError, match="Read-only file system") as caught:
        documents.write_text(tmp_path / "file.txt", "text")
    assert caught.value.filename == str(tmp_path / "file.txt")
