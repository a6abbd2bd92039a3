"""The tracking server: its URI with and without credentials, its pages, and what its answers and failures mean."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from conf.secrets import redact, strip_credentials
from tracking.environment import importing_mlflow
from tracking.mirror import answer_check, connection, permissions, recipients

MODEL_TRAINING = "workflowType=machine_learning"  # the half of MLflow's UI that shows runs; it starts in the other
LOCAL_UI = "http://127.0.0.1:5000"  # where `ui_command` serves a database
REQUEST_TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"  # seconds, read by MLflow at every request
DEFAULT_TIMEOUT = "15"  # MLflow's own, 120 s, is long to find out that nobody is there

# One request, one answer: the mirror's caller decides when to try again. MLflow's own defaults (7 retries, doubling
# from 2 s, 120 s a request) block a refused call for 246 s. What the user has set wins.
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    REQUEST_TIMEOUT: DEFAULT_TIMEOUT,
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # its errors reach the user once, through ours
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_AGENT_HINT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",  # a training machine calls no third party
    "GIT_PYTHON_REFRESH": "quiet",
}


class TrackingUnavailable(Exception):
    """The tracking server cannot be reached, or not now: try again later, nothing is lost.

    `retry_after_sec` is what the server asked for; `timed_out` says that it did not answer in time.
    """

    def __init__(self, message: str, retry_after_sec: float = 0.0, timed_out: bool = False) -> None:
        super().__init__(message)
        self.retry_after_sec = retry_after_sec
        self.timed_out = timed_out


class TrackingRefused(Exception):
    """The tracking server answers and refuses: trying again does not help until somebody changes something."""


def default_uri() -> str:
    """$MLFLOW_TRACKING_URI, else the database mlflow.db in the current folder. May hold credentials."""
    return absolute_uri(os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db")


def absolute_uri(uri: str) -> str:
    """The URI with a relative SQLite path made absolute, so that it means the same from every folder."""
    path = sqlite_path(uri)
    return uri if path is None else uri.replace(f"///{path}", f"///{path.expanduser().absolute()}", 1)


def named(uri: str | None) -> str:
    """The absolute URI that an option gives, or else `default_uri`: a server that may have the user's credentials."""
    uri = absolute_uri(uri) if uri else default_uri()
    recipients.name_server(uri)
    return uri


def run_link(uri: str, experiment_id: str, run_id: str, artifact: str = "") -> str:
    """The page of a run in MLflow's UI, or of one of its artifacts; for a database, where `ui_command` serves it."""
    path = f"/artifacts/{quote(artifact)}" if artifact else ""
    return f"{_ui_root(uri)}/#/experiments/{experiment_id}/runs/{run_id}{path}?{MODEL_TRAINING}"


def experiment_link(uri: str, experiment_id: str) -> str:
    """All runs of an experiment. MLflow's own links lead to its other half until a browser has chosen this one."""
    return f"{_ui_root(uri)}/#/experiments/{experiment_id}/runs?{MODEL_TRAINING}"


def view_link(uri: str, experiment_id: str, view: str, charts: bool = False) -> str:
    """The runs of an experiment as a view has them that is stored there (see sweep_view), as a table or as charts."""
    mode = "&compareRunsMode=CHART" if charts else ""
    return f"{_ui_root(uri)}/#/experiments/{experiment_id}/runs?viewStateShareKey={quote(view)}{mode}&{MODEL_TRAINING}"


def search_link(uri: str, experiment_id: str, search: str, sorted_by: str) -> str:
    """The runs of an experiment that a filter finds, sorted, in the columns that the user had last."""
    query = urlencode({"searchFilter": search, "orderByKey": sorted_by, "orderByAsc": "true"}, quote_via=quote)
    return f"{_ui_root(uri)}/#/experiments/{experiment_id}/runs?{query}&{MODEL_TRAINING}"


def compare_link(uri: str, experiment_id: str, run_ids: list[str]) -> str:
    """The page that compares runs (getCompareRunPageRoute in MLflow's routes: two JSON lists as the query)."""
    runs, experiments = (
        quote(json.dumps(ids, separators=(",", ":")), safe="") for ids in (list(run_ids), [experiment_id])
    )
    return f"{_ui_root(uri)}/#/compare-runs?runs={runs}&experiments={experiments}&{MODEL_TRAINING}"


def ui_command(uri: str) -> str | None:
    """The command that serves a database's runs at the links above; None where a server does already."""
    if urlsplit(uri).scheme in ("http", "https"):
        return None
    return f"mlflow ui --backend-store-uri {shlex.quote(strip_credentials(uri))} --port {LOCAL_UI.rpartition(':')[2]}"


def artifact_root(uri: str) -> str | None:
    """Where a database's artifacts go: beside it, wherever the process runs; a server decides for itself (None).

    The folder is made here, as private as run folders are, since it holds copies of their files.
    """
    path = sqlite_path(uri)
    if path is None:
        return None
    folder = path.absolute().parent / "mlartifacts"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.as_uri()


def _ui_root(uri: str) -> str:
    return strip_credentials(uri).rstrip("/") if urlsplit(uri).scheme in ("http", "https") else LOCAL_UI


def sqlite_path(uri: str) -> Path | None:
    """The file of a local SQLite database, absolute or relative to the current folder; None for any other URI."""
    match = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?]+)(\?.*)?", uri)
    return Path(match[1]) if match and match[1] != ":memory:" else None


def check_server(uri: str, experiment: str | None = None) -> None:
    """Ask an HTTP tracking server, within seconds, whether it will take a run; of others, that no folder is there.

    Raises TrackingRefused when it refuses our credentials, or this user may not write to `experiment`;
    TrackingUnavailable when it does not answer as MLflow does.
    """
    path = sqlite_path(uri)
    if path is not None and path.expanduser().is_dir():  # MLflow would try for minutes to open it
        raise TrackingRefused(f"{uri}: {path} is a folder; give the database's file, as in sqlite:///{path}/mlflow.db")
    if not connection.is_http(uri):
        return
    try:
        response = connection.request(uri, "POST", "api/2.0/mlflow/experiments/search", json={"max_results": 1})
        if response.status_code in (401, 403):
            raise TrackingRefused(_refusal(uri, f"HTTP {response.status_code}"))
        if response.status_code != 200:
            text = _message(uri, f"HTTP {response.status_code} {response.text[:200].strip()}")
            raise TrackingUnavailable(text, _retry_after_sec(response.headers.get("Retry-After", "")))
        answer_check.check(response, "POST")
        problem = permissions.problem(uri, experiment) if experiment else None
    except connection.Misconfigured as error:
        raise TrackingRefused(f"{strip_credentials(uri)}: {error}; or train now with tracking.offline=true") from None
    except OSError as error:  # the exceptions of requests are among them
        raise TrackingUnavailable(_message(uri, connection.outage(error))) from None
    if problem:
        raise TrackingRefused(f"{strip_credentials(uri)}: {problem}")


def _retry_after_sec(header: str) -> float:
    """A Retry-After header, in seconds or as a date (RFC 9110, section 10.2.3); 0 where there is none."""
    with suppress(ValueError):
        return max(0.0, float(header))
    with suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    return 0.0


@contextmanager
def answers(uri: str, hint: str) -> Iterator[None]:
    """Turn whatever a request raises into TrackingUnavailable or TrackingRefused, without credentials.

    `hint` says what to do where the server does not know what the request names.
    """
    with importing_mlflow:
        from mlflow.exceptions import MlflowException

        answer_check.have_mlflow_check()
    try:
        yield
    except (TrackingUnavailable, TrackingRefused):
        raise
    except MlflowException as error:
        if problem := connection.tls_problem(str(error)):
            raise TrackingRefused(f"{strip_credentials(uri)}: {problem}") from None
        status = error.get_http_status_code()
        if status == 403:
            raise TrackingRefused(_forbidden(uri, error)) from None
        if status == 401:
            raise TrackingRefused(_refusal(uri, error)) from None
        # MLflow says BAD_REQUEST, with status 400, of a database whose connection is gone (mlflow/store/db/utils.py).
        if status in (400, 404) and error.error_code != "BAD_REQUEST":
            raise TrackingRefused(f"{_message(uri, error)}. {hint}") from None
        not_of_mlflow = "error_code" not in getattr(error, "json", {"error_code": ""})
        if not_of_mlflow or re.search(r"too many (429|503) error responses", str(error)):
            check_server(uri)  # MLflow drops a proxy's HTTP status, and Retry-After: ask for them
        raise TrackingUnavailable(_message(uri, error), timed_out="Read timed out" in str(error)) from None
    except Exception as error:  # SQLAlchemy, requests and the artifact stores' SDKs raise classes of their own
        text = _message(uri, f"{type(error).__name__}: {error}")
        status = getattr(getattr(error, "response", None), "status_code", 0)
        if status in (401, 403):
            raise TrackingRefused(_refusal(uri, error)) from None
        if 400 <= status < 500 and status not in (408, 429):
            raise TrackingRefused(text) from None
        raise TrackingUnavailable(text) from None


def _message(uri: str, error: object) -> str:
    text = str(error).replace(uri, strip_credentials(uri)) or type(error).__name__
    return f"{strip_credentials(uri)}: {redact(text)}"


def _forbidden(uri: str, error: object) -> str:
    if why := connection.has_credentials(uri) and recipients.withheld(uri):
        return f"{_message(uri, error)}: it does not allow this without credentials, and {why}"
    return (
        f"{_message(uri, error)}: a run needs EDIT on its experiment; `python -m tracking doctor` says what you have "
        "and who can grant it. Nothing is lost: `python -m tracking sync` uploads the rest"
    )


def _refusal(uri: str, error: object) -> str:
    if why := connection.has_credentials(uri) and recipients.withheld(uri):
        return f"{_message(uri, error)}: it asks for credentials, and {why}"
    user, password = connection.credentials()
    who = urlsplit(uri).username or (user if password else None)
    given = f"the password of {who} is wrong, or there is no such user" if who else "it asks for a user and a password"
    why = given if "401" in str(error) or "not authenticated" in str(error) else "it does not allow this"
    return (
        f"{_message(uri, error)}: {why}. Give MLflow's credentials in MLFLOW_TRACKING_USERNAME and "
        "MLFLOW_TRACKING_PASSWORD (or MLFLOW_TRACKING_TOKEN) or ~/.mlflow/credentials, or train now with "
        "tracking.offline=true"
    )
