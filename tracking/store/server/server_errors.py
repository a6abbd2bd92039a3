"""Classify a tracking server's answers and failures: try again later, or change something first."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

from tracking.base.installation import TRACKING
from tracking.base.paths import with_home
from tracking.base.secrets import redact, strip_credentials
from tracking.machine.environment import importing_mlflow
from tracking.store.server import answer_check, connection, permissions, recipients
from tracking.store.server.uris import sqlite_path

REQUEST_TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"  # seconds, read by MLflow at every request
DEFAULT_TIMEOUT = "15"  # MLflow's own, 120 s, is too long to notice a missing server

# One attempt per request: the mirror's caller decides when to try again. MLflow's own defaults (7 retries, doubling
# from 2 s, 120 s a request) block a refused call for 246 s. The user's settings take precedence.
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    REQUEST_TIMEOUT: DEFAULT_TIMEOUT,
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # the user sees its errors in our messages
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_AGENT_HINT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",  # a training machine calls no third party
    "GIT_PYTHON_REFRESH": "quiet",
}


class TrackingUnavailable(Exception):
    """The tracking server cannot be reached now: try again later, nothing is lost.

    `retry_after_sec` is the wait that the server asked for. `timed_out`: it did not answer in time.
    """

    def __init__(self, message: str, retry_after_sec: float = 0.0, timed_out: bool = False) -> None:
        super().__init__(message)
        self.retry_after_sec = retry_after_sec
        self.timed_out = timed_out


class TrackingRefused(Exception):
    """The tracking server refuses: trying again does not help until the user changes something."""


def _may_be_database(path: Path) -> bool:
    """Whether a file is an SQLite database, empty or missing (https://www.sqlite.org/fileformat.html, 1.3)."""
    if not path.exists():
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(16) in (b"", b"SQLite format 3\0")


def check_server(uri: str, experiment: str | None = None) -> None:
    """Check within seconds that a tracking server will take a run.

    An HTTP server is asked, a database's server is connected to, and a database's file is looked at.

    Raises TrackingRefused for refused credentials, an `experiment` that this user may not write to, and a path that is
    not a database; TrackingUnavailable if the server does not answer as MLflow does.
    """
    path = sqlite_path(uri)
    if path is not None and with_home(path).is_dir():  # MLflow would try for minutes to open it
        raise TrackingRefused(
            f"{uri}: {path} is a folder. Next: give the database's file, as in sqlite:///{path}/mlflow.db"
        )
    if path is not None and not _may_be_database(with_home(path)):
        raise TrackingRefused(
            f"{uri}: {path} is not an SQLite database. Next: give another file, or the name of a new one"
        )
    try:
        connection.reach_database(uri)
        if not connection.is_http(uri):
            return
        response = connection.request(uri, "POST", "api/2.0/mlflow/experiments/search", json={"max_results": 1})
        if response.status_code in (401, 403):
            raise TrackingRefused(_refusal(uri, f"HTTP {response.status_code}"))
        if response.status_code != 200:
            text = _message(uri, f"HTTP {response.status_code} {response.text[:200].strip()}")
            raise TrackingUnavailable(text, _retry_after_sec(response.headers.get("Retry-After", "")))
        answer_check.check_answer(response, "POST")
        problem = permissions.why_no_write(uri, experiment) if experiment else None
    except connection.Misconfigured as error:
        raise TrackingRefused(
            f"{strip_credentials(uri)}: {error}. Next: mend that, or train now with tracking.offline=true"
        ) from None
    except OSError as error:  # the exceptions of requests are among them
        raise TrackingUnavailable(_message(uri, connection.explain_outage(error))) from None
    if problem:
        raise TrackingRefused(f"{strip_credentials(uri)}: {problem}")


def _retry_after_sec(header: str) -> float:
    """The seconds of a Retry-After header, which holds seconds or a date (RFC 9110, section 10.2.3); 0 without one."""
    with suppress(ValueError):
        return max(0.0, float(header))
    with suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    return 0.0


@contextmanager
def as_tracking_errors(uri: str, hint: str) -> Iterator[None]:
    """Turn any exception of a request into TrackingUnavailable or TrackingRefused, without credentials.

    `hint`: the next step for the user if the server does not have what the request names.
    """
    with importing_mlflow:
        from mlflow.exceptions import MlflowException

        answer_check.patch_mlflow_client()
    try:
        yield
    except (TrackingUnavailable, TrackingRefused):
        raise
    except MlflowException as error:
        if problem := connection.explain_tls(str(error)):
            raise TrackingRefused(f"{strip_credentials(uri)}: {problem}") from None
        status = error.get_http_status_code()
        if status == 403:
            raise TrackingRefused(_forbidden(uri, error)) from None
        if status == 401:
            raise TrackingRefused(_refusal(uri, error)) from None
        # For a lost database connection, MLflow answers BAD_REQUEST with status 400 (mlflow/store/db/utils.py).
        if status in (400, 404) and error.error_code != "BAD_REQUEST":
            raise TrackingRefused(f"{_message(uri, error)}. {hint}") from None
        is_foreign = "error_code" not in getattr(error, "json", {"error_code": ""})
        if is_foreign or re.search(r"too many (429|503) error responses", str(error)):
            check_server(uri)  # asks for a proxy's HTTP status and Retry-After, which MLflow drops
        timed_out = "Read timed out" in str(error)
        why = error if timed_out or status != 500 else connection.explain_outage(error)  # it did not wait `TIMEOUT_SEC`
        raise TrackingUnavailable(_message(uri, why), timed_out=timed_out) from None
    except Exception as error:  # SQLAlchemy, requests and the artifact stores' SDKs raise classes of their own
        ours = type(error) is ConnectionError  # of `connection.reach_database`, in words
        text = _message(uri, error if ours else f"{type(error).__name__}: {error}")
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
    if why := connection.has_credentials(uri) and recipients.why_withheld(uri):
        return f"{_message(uri, error)}: it does not allow this without credentials, and {why}"
    return (
        f"{_message(uri, error)}: a run needs EDIT on its experiment. Nothing is lost. Next: `{TRACKING} doctor` shows "
        f"your permission and who can grant it; then `{TRACKING} sync` uploads the rest"
    )


def _refusal(uri: str, error: object) -> str:
    if why := connection.has_credentials(uri) and recipients.why_withheld(uri):
        return f"{_message(uri, error)}: it asks for credentials, and {why}"
    user, password = connection.credentials()
    user_name = urlsplit(uri).username or (user if password else None)
    denied = "it asks for a user and a password"
    if user_name:
        denied = f"the password of {user_name} is wrong, or this user does not exist"
    why = denied if "401" in str(error) or "not authenticated" in str(error) else "it does not allow this"
    return (
        f"{_message(uri, error)}: {why}. Next: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD (or "
        "MLFLOW_TRACKING_TOKEN), or write them to ~/.mlflow/credentials, or train now with tracking.offline=true"
    )
