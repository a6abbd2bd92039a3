"""The tracking server's URI: the user's default, and the files of a local database."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tracking.base.installation import with_home
from tracking.base.secrets import strip_credentials
from tracking.request.name_checks import check_uri
from tracking.store.server import recipients


def default_uri() -> str:
    """$MLFLOW_TRACKING_URI, else the database mlflow.db in the current folder. May hold credentials."""
    return absolute_uri(_default())


def _default() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"


def absolute_uri(uri: str) -> str:
    """The URI with a relative SQLite path made absolute, so that it means the same from every folder."""
    path = sqlite_path(uri)
    return uri if path is None else uri.replace(f"///{path}", f"///{with_home(path).absolute()}", 1)


def option_uri(uri: str | None, option: str = "--uri") -> str:
    """The absolute URI of an option, else `default_uri`. Its server may then get the user's credentials.

    Raises ConfigError for one that MLflow cannot use, which `option` or the environment gave.
    """
    check_uri(strip_credentials(uri or _default()), option if uri else "MLFLOW_TRACKING_URI")
    checked = absolute_uri(uri or _default())
    recipients.allow_server(checked)
    return checked


def sqlite_path(uri: str) -> Path | None:
    """The file of a local SQLite database, absolute or relative to the current folder; None for any other URI."""
    match = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?]+)(\?.*)?", uri)
    return Path(match[1]) if match and match[1] != ":memory:" else None


def artifact_root(uri: str) -> str | None:
    """The URI of the folder for a database's artifacts, beside the database; None for a server, which decides itself.

    The folder is created, as private as run folders, since it holds copies of their files.
    """
    path = sqlite_path(uri)
    if path is None:
        return None
    folder = path.absolute().parent / "mlartifacts"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.as_uri()
