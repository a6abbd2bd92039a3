"""MLflow's client for the mirror, with more time for slow servers and for uploads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from tracking.store.server import server_errors, stores
from tracking.store.server.database import open_client
from tracking.store.server.server_errors import REQUEST_TIMEOUT, TrackingUnavailable

if TYPE_CHECKING:
    from mlflow import MlflowClient

Answer = TypeVar("Answer")

MAX_TIMEOUT_SEC = 60.0
MAX_TRIES = 3
STORED_BYTES_PER_SEC = 1e6  # the slowest store allowed for; a server answers once a file is stored


class PatientClient:
    """Requests to the server at `uri`, which may hold credentials; `hint` as in `server_errors.as_tracking_errors`."""

    def __init__(self, uri: str, hint: str) -> None:
        self.uri = uri
        self._hint = hint
        self._timeout_sec = float(server_errors.DEFAULT_TIMEOUT)

    @cached_property
    def mlflow(self) -> MlflowClient:
        stores.check_named_by_user(self.uri)
        return open_client(self.uri)

    @contextmanager
    def request(self, upload_bytes: int = 0) -> Iterator[MlflowClient]:
        """MLflow's client for a request, or for an upload. Raises what `server_errors.as_tracking_errors` raises."""
        try:
            with (
                _timeout(self._timeout_sec + upload_bytes / STORED_BYTES_PER_SEC),
                server_errors.as_tracking_errors(self.uri, self._hint),
            ):
                yield self.mlflow
        except TrackingUnavailable as error:
            if error.timed_out:
                self._timeout_sec = min(2 * self._timeout_sec, MAX_TIMEOUT_SEC)
            raise

    def ask(self, question: Callable[[MlflowClient], Answer], upload_bytes: int = 0) -> Answer:
        """The answer to a request that may be made twice. It is tried again at once where the server fails in between.

        A comparison takes a request a key, so without this it would hardly ever end at a server that fails now and
        then. Raises as `request` does.
        """
        for left in reversed(range(MAX_TRIES)):
            try:
                with self.request(upload_bytes) as client:
                    return question(client)
            except TrackingUnavailable as error:
                if not left or error.timed_out or error.retry_after_sec:
                    raise
        raise AssertionError("the last try returns or raises")


@contextmanager
def _timeout(sec: float) -> Iterator[None]:
    """Within the block, allow requests more than our default time, unless the user has set a timeout.

    MLflow has one timeout for a whole process, so requests of other threads may wait as long meanwhile.
    """
    default = server_errors.DEFAULT_TIMEOUT
    if os.environ.get(REQUEST_TIMEOUT) != default:
        yield
        return
    os.environ[REQUEST_TIMEOUT] = str(max(int(sec), int(default)))
    try:
        yield
    finally:
        os.environ[REQUEST_TIMEOUT] = default
