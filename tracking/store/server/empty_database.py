"""An empty database with MLflow's tables, kept in the user's cache.

MLflow creates its tables in some hundred steps, which would add seconds to the first run in a folder. A copy is quick.
"""

from __future__ import annotations

import secrets
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from tracking.machine.environment import cache, is_trusted, private_folder


def create(path: Path) -> None:
    """Create the database `path`, from the cached copy if it is usable, else by MLflow. Raises what MLflow raises."""
    # The copy has another name until it proves usable: MLflow keeps connections by name, even to a file it rejected.
    copy_path = path.with_name(f"{path.name}-copied")
    try:
        if copy(copy_path):
            _open(copy_path)
            copy_path.rename(path)
            return
    except Exception:  # not a usable database; MLflow raises many classes
        copy_path.unlink(missing_ok=True)
    _open(path)
    with suppress(OSError, sqlite3.Error):  # without a cache, the next database only takes longer
        _cache_copy(path)


def copy(path: Path) -> bool:
    """Copy the cached database to `path`; False if this user owns no cached one."""
    try:
        if not is_trusted(_cached_path()):
            return False
        with _cached_path().open("rb") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
    except OSError:
        path.unlink(missing_ok=True)
        return False
    return True


def _cached_path() -> Path:
    from mlflow.version import VERSION

    return cache() / "mlflow" / f"{VERSION}.db"


def _open(path: Path) -> None:
    """Let MLflow open the database, which creates missing tables and the default experiment."""
    from mlflow.tracking._tracking_service.utils import _get_sqlalchemy_store

    _get_sqlalchemy_store(f"sqlite:///{path}", None).engine.dispose()


def _cache_copy(source_path: Path) -> None:
    """Keep a copy in the cache, without the default experiment, whose row names a folder."""
    cached_path = _cached_path()
    private_folder(cached_path.parent.name)
    new_path = cached_path.with_name(f".{cached_path.name}.{secrets.token_hex(4)}")
    try:
        with closing(sqlite3.connect(source_path)) as source, closing(sqlite3.connect(new_path)) as target:
            source.backup(target)
            target.execute("delete from experiments")
            target.commit()
        new_path.replace(cached_path)
    finally:
        new_path.unlink(missing_ok=True)
