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


def make(path: Path) -> None:
    """Create the database `path`, from the kept copy if it is usable, else by MLflow. Raises what MLflow raises."""
    # The copy has another name until it proves usable: MLflow keeps connections by name, even to a file it rejected.
    copied = path.with_name(f"{path.name}-copied")
    try:
        if copy(copied):
            _open(copied)
            copied.rename(path)
            return
    except Exception:  # not a usable database; MLflow raises many classes
        copied.unlink(missing_ok=True)
    _open(path)
    with suppress(OSError, sqlite3.Error):  # without a cache, the next database only takes longer
        _keep(path)


def copy(path: Path) -> bool:
    """Copy the kept database to `path`; False if there is none that this user owns."""
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
    """Let MLflow open the database, which creates missing tables and the default experiment."""
    from mlflow.tracking._tracking_service.utils import _get_sqlalchemy_store

    _get_sqlalchemy_store(f"sqlite:///{path}", None).engine.dispose()


def _keep(made: Path) -> None:
    """Keep a copy in the cache, without the default experiment, whose row names a folder."""
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
