"""An ASGI check in front of MLflow: who is not known sends no large body.

MLflow reads the body of most requests into memory before it asks for a password. uvicorn with the option
`--http deploy.guard.gate:Gate` asks first where the body is large or its length is not given. Only an artifact may be
of any size: MLflow writes it to disk as it comes.
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

MAX_UNKNOWN_BYTES = 64 * 1024  # from anybody
MAX_IN_MEMORY_BYTES = 16 * 1024**2  # from a user; MLflow takes 1 MB of metrics at once
UPLOAD = re.compile(r"/(ajax-)?api/2\.0/mlflow-artifacts/artifacts/")
LINGER_SEC = 5.0


class Gate(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's own protocol, whose application is behind the check."""

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
            await _refuse(refusal, receive, send)

    return gate


def _header(scope: Message, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


def _length(scope: Message) -> int:
    """The length of the body in bytes; -1 where it is not given. uvicorn has refused what is no number."""
    if _header(scope, b"transfer-encoding") is not None:
        return -1
    return int(_header(scope, b"content-length") or 0)


def _refusal(scope: Message) -> Response | None:
    """The answer to who is not known, and to what would be read into memory and is too large for it."""
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
            return answer(HTTPStatus.LENGTH_REQUIRED, "INVALID_PARAMETER_VALUE", "give the length of what you send")
        if length > MAX_IN_MEMORY_BYTES:
            said = f"{length} bytes are too many; only artifacts may have more than {MAX_IN_MEMORY_BYTES}"
            return answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "INVALID_PARAMETER_VALUE", said)
    return None


async def _refuse(response: Response, receive: Receive, send: Send) -> None:
    """Answer at once, whole, and end the connection; what was sent already is thrown away.

    A socket closed with something unread would have the proxy lose the answer. So the proxy closes it, or time does.
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
