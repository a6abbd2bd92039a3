"""Whether an answer is one of MLflow's: a proxy, a login page or a captive portal says 200 as well.

MLflow's client takes an empty answer for an acknowledgement, and the answer to an upload however it reads. Its servers
answer with a JSON object: log-batch with an empty one, an upload with that or, in newer versions, with nothing at all,
so that only a list of the files shows whether one is there. A download is the file itself.
"""

from __future__ import annotations

import json
from functools import wraps
from typing import TYPE_CHECKING, Any

from tracking.store.server import connection, recipients
from tracking.store.server.answer_size import bounded

if TYPE_CHECKING:
    from collections.abc import Callable

    from requests import Response

FILES = "/mlflow-artifacts/artifacts/"  # in the address of an upload (PUT) and of a download (GET)
WHOLE_ANSWER = 4  # times the timeout of a request, within which all of its answer has to be there
NEXT_STEP = "give the address of the server itself, or log in to what stands before it"


class FalseAnswer(OSError):
    """A request seems to have succeeded, and the answer is none of MLflow's; the message says what it is."""


def check_answer(response: Response, method: str) -> None:
    """Raise FalseAnswer where a request of this method has got a success that MLflow has not answered."""
    file = FILES in str(response.url)
    if not 200 <= response.status_code < 300 or (file and method == "GET"):
        return
    if response.request is not None and response.request.method != method:  # what a redirect makes of a POST
        raise FalseAnswer(f"the {method} was redirected and became a {response.request.method}: {NEXT_STEP}")
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if (kind.endswith("json") and _is_object(response.content)) or (file and not response.content):
        return
    what = f"{len(response.content):,} bytes of {kind or 'no type'}" if response.content else "an empty answer"
    raise FalseAnswer(f"HTTP {response.status_code} with {what} in place of MLflow's JSON object: {NEXT_STEP}")


def _is_object(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), dict)
    except ValueError:
        return False


def have_mlflow_check() -> None:
    """Have MLflow's client in this process check each answer of a tracking server, give nobody else's the user's
    credentials (see recipients), wait no longer for an answer that comes byte by byte, and read none that is too large;
    it has no hook for that.

    What it raises then is its own exception with our words, as for a connection that broke.
    """
    from mlflow.utils import rest_utils

    # for servers; stores in a cloud are asked by another
    send: Callable[..., Response] = rest_utils._get_http_response_with_retries
    if hasattr(send, "__wrapped__"):
        return

    @wraps(send)
    def send_and_check(method: str, url: str, *arguments: Any, **options: Any) -> Response:
        url, options = recipients.guarded(url, options)
        limit_sec = options.get("timeout")
        if FILES in url and method == "GET":  # It is read into a file, and may be as large as it is.
            return send(method, url, *arguments, **options)
        options["stream"] = True

        def ask() -> Response:
            return bounded(send(method, url, *arguments, **options))

        retries = arguments[0] if arguments else options.get("max_retries")
        if FILES in url or retries or not isinstance(limit_sec, int | float):  # a file takes as long as it is large
            response = ask()
        else:
            response = connection.within(WHOLE_ANSWER * limit_sec, ask)
        check_answer(response, method)
        return response

    rest_utils._get_http_response_with_retries = send_and_check
