"""Create a local SQLite database for MLflow: completely or not at all, by one process at a time.

MLflow creates its tables in place, in some hundred steps over seconds. A process that ends meanwhile leaves a file that
MLflow cannot open. So do two processes that create it at once.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import secrets
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tracking.base.paths import with_home
from tracking.machine.environment import importing_mlflow
from tracking.record import run_lock
from tracking.store.server import connection, empty_database
from tracking.store.server.uris import sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

QUIET_SEC = 20.0  # without writes for this long, a database is not being created; each step takes under a second
MLFLOW_TABLES = {"experiments", "alembic_version"}  # tables that MLflow creates first
NEVER_EMPTY = {"alembic_version", "workspaces"}  # tables that have rows in a new database
LOCK_SEC = 15.0  # the longest wait for another process's transaction
SIDE_FILES = ("", "-journal", "-wal", "-shm")  # suffixes of a database and SQLite's files beside it


def open_client(uri: str) -> MlflowClient:
    """MLflow's client, after creating a missing local SQLite database.

    Raises what MLflow raises, and ConnectionError for a database's server that cannot be reached.
    """
    connection.reach_database(uri)
    with importing_mlflow:
        from mlflow import MlflowClient

        path = sqlite_path(uri)
        if path is not None and not str(path).startswith("file:") and not _in_use(with_home(path)):
            _ensure_complete(with_home(path))
        return MlflowClient(uri)


def _in_use(path: Path) -> bool:
    """Whether MLflow can open the database as it is: it has an experiment, of this or an older version."""
    try:
        with closing(_connect(path)) as database:
            return database.execute("select 1 from experiments limit 1").fetchone() is not None
    except sqlite3.Error:
        return False


def _ensure_complete(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path) as exclusive:
        if exclusive:  # files left by processes that were killed while creating a database
            for leftover in path.parent.glob(f".{glob.escape(path.name)}.making-*"):
                leftover.unlink(missing_ok=True)
        while path.exists():
            if not _is_incomplete(path):
                return
            if not _is_being_created(path):
                _move_aside(path)
            else:
                time.sleep(0.2)
        _create(path)


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold the lock for creating this database; yields False if the file system has no locks."""
    with (path.parent / f".{path.name}.lock").open("a") as file:
        has_locks = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in run_lock.NO_LOCKS:
                raise
            has_locks = False
        yield has_locks


def _create(path: Path) -> None:
    """Create a database under a temporary name, and rename it once complete, unless another process was faster."""
    new_path = path.with_name(f".{path.name}.making-{secrets.token_hex(4)}")
    try:
        empty_database.create(new_path)
        try:
            os.link(new_path, path)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
            new_path.rename(path)  # a file system without hard links
    finally:
        for suffix in SIDE_FILES:
            Path(f"{new_path}{suffix}").unlink(missing_ok=True)


def _is_incomplete(path: Path) -> bool:
    """Whether MLflow began to create a database and did not finish: its schema version is missing or another one.

    A complete database of an older MLflow has another version too, but it has rows. Any database with rows is kept. A
    file that is not MLflow's database is left for MLflow to refuse.
    """
    from mlflow.store.db.utils import _get_latest_schema_revision

    try:
        with closing(_connect(path)) as database:
            tables = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}
            if not tables:
                return True
            if not tables & MLFLOW_TABLES:
                return False
            version = "select version_num from alembic_version"
            versions = database.execute(version).fetchall() if "alembic_version" in tables else []
            if versions == [(_get_latest_schema_revision(),)]:
                return False
            queries = (f'select 1 from "{table}" limit 1' for table in tables - NEVER_EMPTY)
            return not any(database.execute(query).fetchone() for query in queries)
    except sqlite3.Error:
        return False


def _connect(path: Path) -> sqlite3.Connection:
    # Read-write, since an unfinished transaction has to be rolled back first.
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=LOCK_SEC)


def _is_being_created(path: Path) -> bool:
    """Whether another process without our lock, such as a new MLflow server, may still be creating the database."""
    write_times = [Path(f"{path}{suffix}").stat().st_mtime for suffix in SIDE_FILES if Path(f"{path}{suffix}").exists()]
    return time.time() - max(write_times, default=0.0) < QUIET_SEC


def _move_aside(path: Path) -> None:
    new_path = path.with_name(f"{path.name}.half-made-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}")
    for suffix in SIDE_FILES:
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{new_path}{suffix}")
    with suppress(OSError):  # stderr may be closed
        print(
            f"note: {path} is incomplete, since the process that created it ended early, and holds no run: moved to"
            f" {new_path}; a new one is created",
            file=sys.stderr, flush=True,
        )  # fmt: skip
