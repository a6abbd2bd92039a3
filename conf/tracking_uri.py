"""What `tracking.uri` may be: an address that MLflow takes, without a password."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from conf.schema import ConfigError
from conf.secrets import URL_PASSWORD, is_secret_name, strip_credentials

URI_SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql", "mssql")


def check_uri(uri: str, option: str = "tracking.uri") -> None:
    """Raises ConfigError for what no runs can be sent to, or what holds a password; `option` is how it was given."""
    bare = strip_credentials(uri)
    in_query = any(is_secret_name(name) for name, _ in parse_qsl(urlsplit(uri).query))
    if URL_PASSWORD.search(uri) or in_query or (bare != uri and bare.startswith("http")):
        raise ConfigError(
            f"{option}: holds a password, which run folders would keep; give it in MLFLOW_TRACKING_USERNAME and"
            " MLFLOW_TRACKING_PASSWORD, or the whole address in MLFLOW_TRACKING_URI"
        )
    if urlsplit(uri).scheme.split("+")[0] not in URI_SCHEMES:
        raise ConfigError(
            f"{option}={bare}: give sqlite:///FILE, http(s)://HOST:PORT or a database's address"
            " (MLflow no longer keeps runs in plain folders)"
        )
    if folder := database_folder(uri):
        raise ConfigError(f"{option}={bare}: {folder} is a folder; give the database's file, as in {bare}/mlflow.db")


def database_folder(uri: str) -> Path | None:
    """The folder that stands where an SQLite database's file should: MLflow would try for minutes to open it."""
    match = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?]+)(?:\?.*)?", uri)
    path = Path(match[1]).expanduser() if match else None
    return path if path is not None and path.is_dir() else None
