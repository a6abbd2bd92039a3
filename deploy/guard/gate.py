"""An ASGI check in front of MLflow: unknown senders cannot send large bodies.

MLflow reads the body of most requests into memory before it checks the password. With uvicorn's option
`--http deploy.guard.gate:Gate` the password is checked first if the body is large or of unknown length. Only artifacts
may have any size, since MLflow streams them to disk.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

if TYPE_CHECKING:
    from flask import Response

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

MAX_UNKNOWN_BYTES = 64 * 1024  # limit for unknown senders
MAX_IN_MEMORY_BYTES = 16 * 1024**2  # limit for users; MLflow takes 1 MB of metrics at once
UPLOAD = re.compile(r"/(ajax-)?api/2\.0/mlflow-artifacts/artifacts/")
LINGER_SEC = 5.0


class Gate(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol with the check before its application."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.app: App = checked(self.app)


def checked(app: App) -> App:
    async def gate(scope: Message, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] == "http" and not 0 <= _length(scope) <= MAX_UNKNOWN_BYTES:
            refusal = await asyncio.to_thread(_refusal, scope)
        if refusal is None:
            await app(scope, receive, send)
        else:
            await _send_refusal(refusal, receive, send)

    return gate


def _header(scope: Message, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


def _length(scope: Message) -> int:
    """The length of the body in bytes; -1 if it is not given. uvicorn has refused malformed numbers."""
    if _header(scope, b"transfer-encoding") is not None:
        return -1
    return int(_header(scope, b"content-length") or 0)


def _refusal(scope: Message) -> Response | None:
    """The refusal of an unknown sender, and of a body that is too large for memory; else None."""
    from mlflow.server import app

    from deploy.guard import answer, identify

    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    with app.test_request_context("/", headers=headers):
        sender = identify()
        if isinstance(sender, app.response_class):
            return sender
        if scope["method"] == "PUT" and UPLOAD.match(scope["path"]):
            return None
        length = _length(scope)
        if length < 0:
            return answer(HTTPStatus.LENGTH_REQUIRED, "INVALID_PARAMETER_VALUE", "the length of the body is missing")
        if length > MAX_IN_MEMORY_BYTES:
            message = f"{length} bytes are too many. Allowed, except for artifacts: {MAX_IN_MEMORY_BYTES}"
            return answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "INVALID_PARAMETER_VALUE", message)
    return None


async def _send_refusal(response: Response, receive: Receive, send: Send) -> None:
    """Answer at once and end the connection. The body is discarded.

    Closing the socket with unread data would lose the answer in the proxy. So wait until the proxy closes it, or for
    LINGER_SEC.
    """
    response.headers["Connection"] = "close"
    headers = [(name.lower().encode(), value.encode()) for name, value in response.headers]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.get_data(), "more_body": True})
    try:
        async with asyncio.timeout(LINGER_SEC):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b""})
