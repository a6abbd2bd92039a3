"""A database of MLflow's tables without any run or experiment, kept in the user's cache.

MLflow makes its tables in some hundred steps, which take seconds of a user's first run in a folder. A copy takes none.
"""

from __future__ import annotations

import secrets
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from tracking.machine.environment import cache, is_trusted, private_folder


def make(path: Path) -> None:
    """Make the new database `path` as MLflow would, of a copy where one can be used. Raises what MLflow raises."""
    # The copy has a name of its own until it is good: MLflow keeps connections, by name, to what it failed to open.
    copied = path.with_name(f"{path.name}-copied")
    try:
        if copy(copied):
            _open(copied)
            copied.rename(path)
            return
    except Exception:  # It is no database, or of other tables, and MLflow says so in many ways.
        copied.unlink(missing_ok=True)
    _open(path)
    with suppress(OSError, sqlite3.Error):  # A cache without room or permission costs the next database its seconds.
        _keep(path)


def copy(path: Path) -> bool:
    """Copy the kept database to `path`; False where none is kept that is this user's own."""
    try:
        if not is_trusted(_kept()):
            return False
        with _kept().open("rb") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
    except OSError:
        path.unlink(missing_ok=True)
        return False
    return True


def _kept() -> Path:
    from mlflow.version import VERSION

    return cache() / "mlflow" / f"{VERSION}.db"


def _open(path: Path) -> None:
    """What MLflow does with a database itself: the tables that it lacks, and the experiment that each has."""
    from mlflow.tracking._tracking_service.utils import _get_sqlalchemy_store

    _get_sqlalchemy_store(f"sqlite:///{path}", None).engine.dispose()


def _keep(made: Path) -> None:
    """Keep a copy without the experiment, whose row names a folder of its own."""
    kept = _kept()
    private_folder(kept.parent.name)
    new = kept.with_name(f".{kept.name}.{secrets.token_hex(4)}")
    try:
        with closing(sqlite3.connect(made)) as source, closing(sqlite3.connect(new)) as target:
            source.backup(target)
            target.execute("delete from experiments")
            target.commit()
        new.replace(kept)
    finally:
        new.unlink(missing_ok=True)
