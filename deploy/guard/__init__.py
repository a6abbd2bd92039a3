"""The `authorization_function` of MLflow's basic-auth app: checks every request before MLflow's own permissions.

MLflow calls it for every request that is not public, including administrators'. It refuses

- requests without user and password, and users with too many wrong passwords (`failures`);
- every route that is not open (`routes`), and administrators' routes to other users: MLflow shows all teams and their
  permissions to any user with a permission on anything;
- an artifact location chosen by a client, and an artifact path outside of all experiments. MLflow would read and write
  there with the rights and keys of the server.

Requests are parsed by MLflow's own functions, so that another spelling or encoding makes no difference.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.guard.failures import Failures
from deploy.guard.routes import ADMIN, SELF, requirement

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.datastructures import Authorization

__all__ = ["answer", "authenticate", "identify"]

# The service has its own folder for temporary files, which all its processes share.
_wrong_passwords = Failures(Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "wrong-passwords.sqlite")
# The passwords sent for a user are checked one after another. Otherwise each thread could check one before the first
# wrong one is counted. A right password takes the slow check once a minute; it is cached in between.
_attempt_locks = [threading.Lock() for _ in range(64)]


def authenticate() -> Authorization | Response:
    """The sender of Flask's current request, or a refusal."""
    from flask import Response, g

    if "guarded" not in g:  # MLflow calls this several times
        g.guarded = identify()
        if not isinstance(g.guarded, Response):
            g.guarded = _route_refusal(g.guarded.username or "") or g.guarded
    return g.guarded  # type: ignore[no-any-return]


def identify() -> Authorization | Response:
    """The sender, by user and password; or a refusal."""
    from flask import Response, request
    from mlflow.server.auth import authenticate_request_basic_auth

    credentials = request.authorization
    user, password = (
        (credentials.username, credentials.password) if credentials and credentials.type == "basic" else (None, None)
    )
    if not user or password is None or "\0" in user + password:
        return answer(401, "UNAUTHENTICATED", "give a user and a password (HTTP Basic); tokens are not supported")
    # Set by the proxy. Only the server's own user can bypass it; the operator's commands do.
    address = request.headers.get("X-Forwarded-For", "")
    with _attempt_locks[hash((user, address)) % len(_attempt_locks)]:
        if address and (wait_sec := _wrong_passwords.wait_sec(user, address)):
            message = f"too many wrong passwords for {user} from {address}. Next: try again in {wait_sec} s"
            return answer(429, "REQUEST_LIMIT_EXCEEDED", message, {"Retry-After": str(wait_sec)})
        sender = authenticate_request_basic_auth()
        if isinstance(sender, Response) and address:
            _wrong_passwords.add(user, address)
    return sender


def _route_refusal(sender: str) -> Response | None:
    """The refusal of a closed route, of another user's account, and of a place that clients may not name; else None."""
    from flask import request

    rule = request.url_rule.rule if request.url_rule else ""
    required = requirement(request.method, rule)
    if required is None:
        reason = "switched off: this server only keeps runs (docs/server.md, Users and teams)"
        return answer(403, "PERMISSION_DENIED", f"{request.method} {request.path}: {reason}")
    if (required == ADMIN or (required == SELF and not _names_sender(sender))) and not _is_administrator(sender):
        return answer(403, "PERMISSION_DENIED", f"{request.method} {request.path}: only an administrator may do this")
    if rule.endswith("/mlflow/experiments/create") and _chooses_location():
        message = "artifact_location: this server chooses where artifacts are kept. Next: leave it out"
        return answer(400, "INVALID_PARAMETER_VALUE", message)
    if "/mlflow-artifacts/" in rule and not _in_an_experiment():
        reason = "not a path of an experiment. Next: give one that begins with an experiment's id"
        return answer(403, "PERMISSION_DENIED", f"{request.path}: {reason}")
    return None


def _names_sender(sender: str) -> bool:
    """Whether the request names the sender's own account."""
    from mlflow.exceptions import MlflowException
    from mlflow.server.auth import _get_request_param

    try:
        return bool(_get_request_param("username") == sender)
    except MlflowException:
        return False


def _is_administrator(sender: str) -> bool:
    from mlflow.server.auth import store

    return bool(store.get_user(sender).is_admin)


def _chooses_location() -> bool:
    """Whether the request, as MLflow will parse it, has a location or is malformed."""
    from mlflow.protos.service_pb2 import CreateExperiment
    from mlflow.server.handlers import _get_request_message

    try:
        return bool(_get_request_message(CreateExperiment()).HasField("artifact_location"))
    except Exception:  # A malformed body may raise anything.
        return True


def _in_an_experiment() -> bool:
    from flask import request
    from mlflow.exceptions import MlflowException
    from mlflow.utils.uri import validate_path_is_safe

    artifact_path = (request.view_args or {}).get("artifact_path", request.args.get("path", ""))
    try:  # Also as sent: permissions may not recognise an id in another spelling (%201, 01).
        return all(
            re.match(r"(0|[1-9][0-9]*)(/|$)", path) for path in (artifact_path, validate_path_is_safe(artifact_path))
        )
    except MlflowException:
        return False


def answer(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """An answer in the form of MLflow's errors, which its clients show."""
    from flask import jsonify

    answer: Response = jsonify(error_code=code, message=message)
    answer.status_code = status
    answer.headers.update(headers or {})
    if status == 401:
        answer.headers["WWW-Authenticate"] = 'Basic realm="mlflow"'
    return answer
