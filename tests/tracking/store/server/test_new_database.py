"""A local database is made whole or not at all: whoever ends while it is made, and however many make it at once."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
import threading
import time
from contextlib import closing
from multiprocessing.context import BaseContext
from pathlib import Path

import pytest

from tests.support.folders import end, make_folder, wait_for, write_rows
from tracking.jobs.follow.sync import sync
from tracking.store.mirror.mirror import Mirror
from tracking.store.server import empty_database as empty
from tracking.store.server import open_client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

NUM_AT_ONCE = 4


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database that a cache keeps once one was made."""
    root = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIMETRIAL_CACHE", str(root / "cache"))
        open_client(f"sqlite:///{root}/mlflow.db")
    [kept] = (root / "cache/mlflow").iterdir()
    return kept


@pytest.fixture(scope="module")
def processes() -> BaseContext:
    """Processes that have MLflow imported when they start."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mlflow", "mlflow.tracking.client", "tracking.jobs.follow.sync", __name__])
    return context


def ended_run(root: Path, name: str = "run") -> Path:
    folder = make_folder(root, f"sqlite:///{root}/mlflow.db", name)
    write_rows(folder, range(3))
    end(folder)
    return folder


def upload_first(folder: Path) -> None:
    """Upload as who has never made a database before, whose tables MLflow makes."""
    os.environ["TIMETRIAL_CACHE"] = str(folder / "cache")
    upload(folder)


def upload(folder: Path) -> None:
    [outcome] = sync([folder])
    assert outcome.state == "complete", outcome.message


def num_rows(database: Path, folder: Path) -> int:
    with closing(sqlite3.connect(database)) as opened:
        run_id = Mirror(folder).run_id
        return opened.execute("select count(*) from metrics where run_uuid = ?", (run_id,)).fetchone()[0]


def tables(database: Path) -> set[tuple[str, ...]]:
    """Tables and indices with their columns, and the version; the words that made them have no order in MLflow."""
    columns = """select m.type, m.name, c.name, c.type from sqlite_master m left join pragma_table_info(m.name) c
        union select 'version', version_num, '', '' from alembic_version"""
    with closing(sqlite3.connect(database)) as opened:
        return set(opened.execute(columns))


def cut_short(whole: Path, path: Path, revision: str = "a8c4a736bde6") -> None:
    """The database that is left when MLflow is killed while it makes one."""
    shutil.copy(whole, path)
    with closing(sqlite3.connect(path)) as database:
        for (name,) in database.execute("select name from sqlite_master where type = 'table'").fetchall():
            if name not in ("alembic_version", "experiments", "runs", "metrics", "params", "tags"):
                database.execute(f"drop table {name}")
        database.execute("delete from experiments")
        database.execute("update alembic_version set version_num = ?", (revision,))
        database.commit()
    os.utime(path, (0, 0))


def test_many_that_start_at_once_make_one_database(processes: BaseContext, tmp_path: Path) -> None:
    folders = [ended_run(tmp_path, f"run{number}") for number in range(NUM_AT_ONCE)]
    workers = [processes.Process(target=upload_first, args=(folder,)) for folder in folders]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * NUM_AT_ONCE
    assert [num_rows(tmp_path / "mlflow.db", folder) for folder in folders] == [6] * NUM_AT_ONCE
    assert {path.name for path in tmp_path.glob("*mlflow.db*")} == {"mlflow.db", ".mlflow.db.lock"}


def test_one_that_is_killed_while_it_makes_one_leaves_nothing_in_the_way(
    processes: BaseContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that cannot be written is not in the way either."""
    folder = ended_run(tmp_path)
    worker = processes.Process(target=upload_first, args=(folder,))
    worker.start()
    wait_for(lambda: list(tmp_path.glob("*mlflow.db*")) and sum(at.stat().st_size for at in tmp_path.glob("*mlf*db*")))
    worker.kill()
    worker.join()
    assert not (tmp_path / "mlflow.db").exists()
    monkeypatch.setenv("TIMETRIAL_CACHE", "/dev/null/cache")
    upload(folder)
    assert num_rows(tmp_path / "mlflow.db", folder) == 6
    assert not list(tmp_path.glob(".mlflow.db.making*"))


@pytest.mark.parametrize("left", ["half", "empty"])
def test_a_half_made_database_is_moved_aside_and_named(
    empty_database: Path, tmp_path: Path, left: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mlflow.db"
    if left == "half":
        cut_short(empty_database, path)
    else:
        path.touch()
        os.utime(path, (0, 0))
    content = path.read_bytes()
    folder = ended_run(tmp_path)
    upload(folder)
    [aside] = tmp_path.glob("mlflow.db.half-made-*")
    assert aside.read_bytes() == content
    assert str(aside) in capfd.readouterr().err
    assert num_rows(path, folder) == 6


def test_a_database_that_another_program_is_making_is_waited_for(empty_database: Path, tmp_path: Path) -> None:
    """As an MLflow server does that was started a moment ago."""
    path, folder = tmp_path / "mlflow.db", ended_run(tmp_path)
    cut_short(empty_database, path)
    path.touch()
    uploading = threading.Thread(target=upload, args=(folder,))
    uploading.start()
    wait_for(lambda: (tmp_path / ".mlflow.db.lock").exists())
    time.sleep(0.5)
    shutil.copy(empty_database, path)
    uploading.join()
    assert num_rows(path, folder) == 6
    assert not list(tmp_path.glob("mlflow.db.half-made-*"))


def test_a_whole_database_of_an_older_version_is_left_alone(empty_database: Path, tmp_path: Path) -> None:
    path, folder = tmp_path / "mlflow.db", ended_run(tmp_path)
    shutil.copy(empty_database, path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("update alembic_version set version_num = 'a8c4a736bde6'")
        database.commit()
    os.utime(path, (0, 0))
    content = path.read_bytes()
    [outcome] = sync([folder])
    assert outcome.state == "failed"
    assert "mlflow db upgrade" in outcome.message
    assert path.read_bytes() == content
    assert [at.name for at in tmp_path.glob("*mlflow.db*")] == ["mlflow.db"]


def test_the_next_database_is_a_copy_with_an_experiment_of_its_own(
    kept: Path, empty_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(kept.parent.parent))
    with closing(sqlite3.connect(kept)) as database:
        assert database.execute("select * from experiments").fetchall() == []
        database.execute("create table of_the_copy (n integer)")  # by which it is known
        database.commit()
    monkeypatch.chdir(tmp_path)
    [experiment] = open_client(f"sqlite:///{tmp_path}/mlflow.db").search_experiments()
    assert (experiment.name, experiment.artifact_location) == ("Default", str(tmp_path / "mlruns/0"))
    assert tables(tmp_path / "mlflow.db") - tables(empty_database) == {("table", "of_the_copy", "n", "INTEGER")}
    assert tables(empty_database) < tables(tmp_path / "mlflow.db")
    assert {path.name for path in tmp_path.glob("*mlflow.db*")} == {"mlflow.db", ".mlflow.db.lock"}


def test_a_kept_database_that_is_not_whole_is_made_anew(
    empty_database: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "cache/mlflow" / kept.name
    path.parent.mkdir(parents=True)
    cut_short(empty_database, path)
    open_client(f"sqlite:///{tmp_path}/mlflow.db")
    assert tables(tmp_path / "mlflow.db") == tables(path) == tables(empty_database)
    assert {path.name for path in tmp_path.glob("*mlflow.db*")} == {"mlflow.db", ".mlflow.db.lock"}


def test_what_is_not_there_or_a_strangers_is_not_copied(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mlflow.db"
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "none"))
    assert not empty.copy(path)
    monkeypatch.setenv("TIMETRIAL_CACHE", str(kept.parent.parent))
    assert empty.copy(path)
    assert path.read_bytes() == kept.read_bytes()
    path.unlink()
    kept.parent.parent.chmod(0o777)
    assert not empty.copy(path)
    assert not path.exists()
    kept.parent.parent.chmod(0o700)
