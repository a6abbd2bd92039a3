"""Check that an answer is MLflow's, since a proxy, a login page or a captive portal also answers 200.

MLflow's client takes an empty answer for an acknowledgement, and any answer to an upload for a success. MLflow's
servers answer with a JSON object: log-batch with an empty one, an upload with an empty one, or in newer versions with
nothing. So only a listing shows whether an upload arrived. A download is the file itself.
"""

from __future__ import annotations

import json
from functools import wraps
from typing import TYPE_CHECKING, Any

from tracking.store.server import connection, recipients
from tracking.store.server.answer_size import read_bounded

if TYPE_CHECKING:
    from collections.abc import Callable

    from requests import Response

FILES = "/mlflow-artifacts/artifacts/"  # in the address of an upload (PUT) and of a download (GET)
ANSWER_TIMEOUTS = 4  # times a request's timeout, the limit for its whole answer
NEXT_STEP = "give the address of the server itself, or log in to the proxy in front of it"


class FalseAnswer(OSError):
    """A successful answer that is not from MLflow; the message describes it."""


def check_answer(response: Response, method: str) -> None:
    """Raise FalseAnswer for a successful answer to this method that is not from MLflow."""
    is_file = FILES in str(response.url)
    if not 200 <= response.status_code < 300 or (is_file and method == "GET"):
        return
    if response.request is not None and response.request.method != method:  # a redirect turns a POST into a GET
        raise FalseAnswer(f"the {method} was redirected and became a {response.request.method}. Next: {NEXT_STEP}")
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if (kind.endswith("json") and _is_object(response.content)) or (is_file and not response.content):
        return
    answer = f"{len(response.content):,} bytes of {kind or 'no type'}" if response.content else "an empty answer"
    raise FalseAnswer(f"HTTP {response.status_code} with {answer} in place of MLflow's JSON object. Next: {NEXT_STEP}")


def _is_object(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), dict)
    except ValueError:
        return False


def patch_mlflow_client() -> None:
    """Patch MLflow's client in this process, which has no hook for these checks.

    It then checks each answer of a tracking server, sends the user's credentials only to the user's servers (see
    recipients), limits the time of a slow answer, and does not read an answer that is too large. It raises its own
    exception with our message, as for a broken connection.
    """
    from mlflow.utils import rest_utils

    # for tracking servers; clients of cloud stores do not use it
    send: Callable[..., Response] = rest_utils._get_http_response_with_retries
    if hasattr(send, "__wrapped__"):
        return

    @wraps(send)
    def send_and_check(method: str, url: str, *arguments: Any, **options: Any) -> Response:
        url, options = recipients.guard_request(url, options)
        limit_sec = options.get("timeout")
        if FILES in url and method == "GET":  # streamed into a file, of any size
            return send(method, url, *arguments, **options)
        options["stream"] = True

        def ask() -> Response:
            return read_bounded(send(method, url, *arguments, **options))

        retries = arguments[0] if arguments else options.get("max_retries")
        if FILES in url or retries or not isinstance(limit_sec, int | float):  # a file may take any time
            response = ask()
        else:
            response = connection.ask_within(ANSWER_TIMEOUTS * limit_sec, ask)
        check_answer(response, method)
        return response

    rest_utils._get_http_response_with_retries = send_and_check
