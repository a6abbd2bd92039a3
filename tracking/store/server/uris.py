"""The tracking server's URI: the user's default, the files of a local database, and links to pages of MLflow's UI."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from tracking.base.paths import with_home
from tracking.base.secrets import strip_credentials
from tracking.request.name_checks import check_uri
from tracking.store.server import recipients

MODEL_TRAINING = "workflowType=machine_learning"  # the part of MLflow's UI that shows runs; it opens in the other part
LOCAL_UI = "http://127.0.0.1:5000"  # where `ui_command` serves a database


def default_uri() -> str:
    """$MLFLOW_TRACKING_URI, else the database mlflow.db in the current folder. May hold credentials."""
    return absolute_uri(_default())


def _default() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"


def absolute_uri(uri: str) -> str:
    """The URI with a relative SQLite path made absolute, so that it means the same from every folder."""
    path = sqlite_path(uri)
    return uri if path is None else uri.replace(f"///{path}", f"///{with_home(path).absolute()}", 1)


def option_uri(uri: str | None) -> str:
    """The absolute URI of an option, else `default_uri`. Its server may then get the user's credentials.

    Raises ConfigError for one that MLflow cannot use, which the option or the environment gave.
    """
    check_uri(strip_credentials(uri or _default()), "--uri" if uri else "MLFLOW_TRACKING_URI")
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


def run_link(uri: str, experiment_id: str, run_id: str, artifact: str = "") -> str:
    """The page of a run or of one of its artifacts; for a database, at the address that `ui_command` serves."""
    path = f"/artifacts/{quote(artifact)}" if artifact else ""
    return f"{_ui_root(uri)}/#/experiments/{experiment_id}/runs/{run_id}{path}?{MODEL_TRAINING}"


def experiment_link(uri: str, experiment_id: str) -> str:
    """The page with all runs of an experiment. MLflow's own links may open the UI's other part."""
    return f"{_ui_root(uri)}/#/experiments/{experiment_id}/runs?{MODEL_TRAINING}"


def view_link(uri: str, experiment_id: str, view: str, charts: bool = False) -> str:
    """The runs of an experiment in a stored view (see sweep_view), as a table or as charts."""
    mode = "&compareRunsMode=CHART" if charts else ""
    return f"{_ui_root(uri)}/#/experiments/{experiment_id}/runs?viewStateShareKey={quote(view)}{mode}&{MODEL_TRAINING}"


def search_link(uri: str, experiment_id: str, search: str, sorted_by: str) -> str:
    """The runs of an experiment that match a filter, sorted, in the user's last columns."""
    query = urlencode({"searchFilter": search, "orderByKey": sorted_by, "orderByAsc": "true"}, quote_via=quote)
    return f"{_ui_root(uri)}/#/experiments/{experiment_id}/runs?{query}&{MODEL_TRAINING}"


def compare_link(uri: str, experiment_id: str, run_ids: list[str]) -> str:
    """The page that compares runs (getCompareRunPageRoute in MLflow's routes: two JSON lists as the query)."""
    runs, experiments = (
        quote(json.dumps(ids, separators=(",", ":")), safe="") for ids in (list(run_ids), [experiment_id])
    )
    return f"{_ui_root(uri)}/#/compare-runs?runs={runs}&experiments={experiments}&{MODEL_TRAINING}"


def ui_command(uri: str) -> str | None:
    """The command that serves a database's runs at these links; None for a server's URI."""
    if urlsplit(uri).scheme in ("http", "https"):
        return None
    return f"mlflow ui --backend-store-uri {shlex.quote(strip_credentials(uri))} --port {LOCAL_UI.rpartition(':')[2]}"


def _ui_root(uri: str) -> str:
    return strip_credentials(uri).rstrip("/") if urlsplit(uri).scheme in ("http", "https") else LOCAL_UI
