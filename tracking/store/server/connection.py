"""Requests to a tracking server as MLflow sends them, with short timeouts and TLS errors in plain words.

MLflow's own client takes seconds to import, with the first upload, and retries for minutes. `recipients` decides which
servers get the user's credentials.
"""

from __future__ import annotations

import base64
import configparser
import os
import re
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tracking.base.paths import with_home
from tracking.store.server import recipients
from tracking.store.server.answer_size import read_bounded

if TYPE_CHECKING:
    from requests import Response

TIMEOUT_SEC = 5
SLACK_SEC = 0.5  # for a thread to start, and for a call to report its own timeout
CERTIFICATE = "MLFLOW_TRACKING_SERVER_CERT_PATH"

# Explanations of messages of OpenSSL, urllib3, requests and nginx.
TLS_PROBLEMS = {
    "self[- ]signed certificate|unable to get (local )?issuer": (
        f"its TLS certificate is not trusted here: set {CERTIFICATE} to the path of the certificate, or of its"
        " authority's certificate"
    ),
    "[Hh]ostname mismatch|IP address mismatch|doesn't match": (
        "its TLS certificate is made out to other names: use one of those in the address"
    ),
    "certificate has expired": "its TLS certificate has expired: its administrator has to renew it",
    "WRONG_VERSION_NUMBER|wrong version number|record layer failure|UNEXPECTED_MESSAGE": (
        "it does not speak TLS: give http:// in place of https://"
    ),
    "plain HTTP request was sent to HTTPS port": "it speaks TLS: give https:// in place of http://",
    "Could not find a suitable TLS CA certificate bundle": f"{CERTIFICATE} names a file that does not exist",
    r"NO_CERTIFICATE_OR_CRL_FOUND|\[X509|no start line|NO_START_LINE|PEM lib|CERTIFICATE_OR_CRL": (
        f"{CERTIFICATE} names a file that holds no certificate in PEM form"
    ),
}

# Explanations of messages of urllib3 and requests for missing answers.
OUTAGES = {
    "Connection refused": "nothing listens there: check that the server runs, and its host and port",
    "Name or service not known|nodename nor servname|name resolution|NameResolutionError": "unknown host name",
    "timed out|Timeout": f"no answer within {TIMEOUT_SEC} s",
    "Network is unreachable|No route to host": "this machine has no route to it",
    "RemoteDisconnected|Connection reset": "it closed the connection without an answer",
}


DATABASE_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}  # if the URI names no port


class Misconfigured(Exception):
    """No request can succeed until the user changes something; the message says what."""


def is_http(uri: str) -> bool:
    """Whether this module can send requests to a server; only MLflow itself can sign them by a plugin."""
    plugin = os.environ.get("MLFLOW_TRACKING_AUTH") or os.environ.get("MLFLOW_TRACKING_AWS_SIGV4")
    return urlsplit(uri).scheme in ("http", "https") and not plugin


def reach_database(uri: str) -> None:
    """Raise ConnectionError if a database's server cannot be reached; MLflow would try for minutes, and say nothing.

    A URI without a host, such as a socket's, is not tried.
    """
    parts = urlsplit(uri)
    port = DATABASE_PORTS.get(parts.scheme.split("+")[0])
    if port is None or not parts.hostname:
        return
    try:
        socket.create_connection((parts.hostname, parts.port or port), TIMEOUT_SEC).close()
    except (OSError, ValueError) as error:  # ValueError: a port that is none
        raise ConnectionError(explain_outage(error)) from None


def request(uri: str, method: str, path: str, **options: Any) -> Response:
    """The response to one request to an HTTP tracking server.

    Raises Misconfigured for TLS that cannot work, and requests.RequestException without an answer.
    """
    import requests

    insecure = os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in ("true", "1")
    certificate = os.environ.get(CERTIFICATE)
    options |= {"headers": authorization(), "cert": os.environ.get("MLFLOW_TRACKING_CLIENT_CERT_PATH")}
    url, options = recipients.guard_request(f"{uri.rstrip('/')}/{path}", options)
    options |= {"timeout": TIMEOUT_SEC, "verify": not insecure and (certificate or True), "stream": True}
    try:
        response = ask_within(TIMEOUT_SEC, lambda: read_bounded(requests.request(method, url, **options)))
    except OSError as error:  # requests' own errors, and a plain OSError for a certificate's path
        if explanation := explain_tls(str(error)):
            raise Misconfigured(explanation) from None
        raise
    if response.status_code == 400 and (explanation := explain_tls(response.text)):
        raise Misconfigured(explanation)
    return response


def ask_within(sec: float, ask: Callable[[], Response]) -> Response:
    """The answer of `ask`, if all of it arrives within `sec`; the timeout of requests restarts with every byte.

    Raises what `ask` raises, and requests.ReadTimeout, after which the request's thread is abandoned.
    """
    from requests import ReadTimeout

    answer: Future[Response] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="request", daemon=True).start()
    try:
        return answer.result(sec + SLACK_SEC)
    except FutureTimeout:
        raise ReadTimeout(f"Read timed out: the answer was incomplete after {sec:.0f} s") from None


def explain_tls(text: str) -> str | None:
    """The explanation of a TLS error message, with what to do; None for another message."""
    explanation = next((words for pattern, words in TLS_PROBLEMS.items() if re.search(pattern, text)), None)
    path = os.environ.get(CERTIFICATE)
    if explanation and path and "names a file" in explanation:
        return explanation.replace(CERTIFICATE, f"{CERTIFICATE}={path}")
    return explanation


def explain_outage(error: object) -> str:
    """Why there was no answer: a short explanation if there is one, else the error's own text."""
    text = str(error)
    return next((explanation for pattern, explanation in OUTAGES.items() if re.search(pattern, text)), text)


def authorization() -> dict[str, str]:
    """The Authorization header as MLflow sends it (mlflow.utils.credentials, mlflow.utils.rest_utils.http_request)."""
    user, password = credentials()
    if user and password:
        return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def has_credentials(uri: str) -> bool:
    """Whether this user has any credentials for a server."""
    names = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_AUTH", "MLFLOW_TRACKING_AWS_SIGV4")
    return all(credentials()) or any(map(os.environ.get, names)) or "@" in urlsplit(uri).netloc


def user(uri: str) -> str | None:
    """The user name in the URI, else in the environment, else in MLflow's credentials file."""
    return urlsplit(uri).username or credentials()[0]


def credentials() -> tuple[str | None, str | None]:
    """User and password from the environment or MLflow's credentials file."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(with_home("~/.mlflow/credentials"))
    stored: Mapping[str, str] = parser["mlflow"] if parser.has_section("mlflow") else {}
    user, password = (
        os.environ.get(name) or stored.get(name.lower())
        for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
    )
    return user, password
