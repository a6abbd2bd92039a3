"""What stands before MLflow's own permissions, within its server: the `authorization_function` of its basic-auth app.

MLflow calls it with every request that is not public, before it looks at permissions, administrators' too. It refuses

- who has no user and password, in words, and who has tried too many wrong ones (`failures`);
- every route that is not open (`routes`), and those of administrators to everybody else: MLflow shows all teams and
  their permissions to any user who has a permission on anything;
- an artifact location that a client has chosen, and a path of artifacts that is in no experiment. MLflow would read and
  write there with the rights and the keys of the server.

Requests are read by MLflow's own functions, so that spelling or encoding one in another way changes nothing.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.guard.failures import Failures
from deploy.guard.routes import ADMIN, SELF, needed

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.datastructures import Authorization

__all__ = ["answer", "authenticate", "identify"]

# A service has a folder of its own for temporary files; all its processes share this one.
_failures = Failures(Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "wrong-passwords.sqlite")
# Attempts for a user follow one another, else as many as there are threads would be tried before the first is counted.
# A right password takes its time once a minute, and then none.
_in_turn = [threading.Lock() for _ in range(64)]


def authenticate() -> Authorization | Response:
    """The sender of Flask's current request, or the answer that refuses it."""
    from flask import Response, g

    if "guarded" not in g:  # MLflow asks several times
        g.guarded = identify()
        if not isinstance(g.guarded, Response):
            g.guarded = _refuse_place(g.guarded.username or "") or g.guarded
    return g.guarded  # type: ignore[no-any-return]


def identify() -> Authorization | Response:
    """The sender, by user and password alone; or the answer to who has none that is right."""
    from flask import Response, request
    from mlflow.server.auth import authenticate_request_basic_auth

    given = request.authorization
    user, password = (given.username, given.password) if given and given.type == "basic" else (None, None)
    if not user or password is None or "\0" in user + password:
        return answer(401, "UNAUTHENTICATED", "give a user and a password (HTTP Basic); tokens are not known here")
    # From the proxy, which nobody but the server's own user can go around: the operator's commands do.
    address = request.headers.get("X-Forwarded-For", "")
    with _in_turn[hash((user, address)) % len(_in_turn)]:
        if address and (wait := _failures.wait_sec(user, address)):
            said = f"too many wrong passwords for {user} from {address}; none is looked at for {wait} s"
            return answer(429, "REQUEST_LIMIT_EXCEEDED", said, {"Retry-After": str(wait)})
        sender = authenticate_request_basic_auth()
        if isinstance(sender, Response) and address:
            _failures.add(user, address)
    return sender


def _refuse_place(sender: str) -> Response | None:
    """The answer to a request for what is closed, to others' accounts, or for a place that no client may name."""
    from flask import request

    rule = request.url_rule.rule if request.url_rule else ""
    kind = needed(request.method, rule)
    if kind is None:
        said = "this server keeps runs; what else MLflow can do is switched off (docs/server.md, Users and teams)"
        return answer(403, "PERMISSION_DENIED", f"{request.method} {request.path}: {said}")
    if (kind == ADMIN or (kind == SELF and not _names(sender))) and not _is_administrator(sender):
        return answer(403, "PERMISSION_DENIED", f"{request.method} {request.path}: only an administrator may do this")
    if rule.endswith("/mlflow/experiments/create") and _chooses_location():
        said = "artifact_location: this server chooses where artifacts are kept; leave it out"
        return answer(400, "INVALID_PARAMETER_VALUE", said)
    if "/mlflow-artifacts/" in rule and not _in_an_experiment():
        said = "give a path that begins with an experiment's id"
        return answer(403, "PERMISSION_DENIED", f"{request.path}: {said}")
    return None


def _names(sender: str) -> bool:
    """Whether the request is about the sender's own account."""
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
    """Whether what MLflow will read from the request has a location, or cannot be read."""
    from mlflow.protos.service_pb2 import CreateExperiment
    from mlflow.server.handlers import _get_request_message

    try:
        return bool(_get_request_message(CreateExperiment()).HasField("artifact_location"))
    except Exception:  # whatever a malformed body raises there
        return True


def _in_an_experiment() -> bool:
    from flask import request
    from mlflow.exceptions import MlflowException
    from mlflow.utils.uri import validate_path_is_safe

    asked = (request.view_args or {}).get("artifact_path", request.args.get("path", ""))
    try:  # As sent, too: permissions may not know a number that is spelt otherwise (%201, 01).
        return all(re.match(r"(0|[1-9][0-9]*)(/|$)", path) for path in (asked, validate_path_is_safe(asked)))
    except MlflowException:
        return False


def answer(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """An answer in the form of MLflow's own errors, which its clients show."""
    from flask import jsonify

    answer: Response = jsonify(error_code=code, message=message)
    answer.status_code = status
    answer.headers.update(headers or {})
    if status == 401:
        answer.headers["WWW-Authenticate"] = 'Basic realm="mlflow"'
    return answer
