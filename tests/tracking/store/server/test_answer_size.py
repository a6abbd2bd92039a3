"""An answer of a few kilobytes that unpacks to more than any of MLflow's is not read to its end."""

from __future__ import annotations

import gc
import gzip
import http.server
import threading
from collections.abc import Iterator

import pytest

from tracking.store import server
from tracking.store.server import PatientClient, TrackingUnavailable, answer_size, connection

MEBIBYTE = 1_048_576
pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def bomb(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server whose answers are of 64 MiB, and 64 kB on their way; more than 1 MiB is too much here."""
    monkeypatch.setattr(answer_size, "MAX_BYTES", MEBIBYTE)
    packed = gzip.compress(b"{" + bytes(64 * MEBIBYTE) + b"}")

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(packed)))
            self.end_headers()
            self.wfile.write(packed)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
    gc.collect()  # what MLflow's sessions leave open


def test_it_is_given_up_by_our_requests_and_by_mlflows(bomb: str) -> None:
    words = "with more than 1,048,576 bytes, unpacked"
    with pytest.raises(TrackingUnavailable, match=words):
        server.check_server(bomb)
    with pytest.raises(TrackingUnavailable, match=words), PatientClient(bomb, "").request() as client:
        client.search_experiments()


def test_an_answer_that_is_just_as_large_is_read(bomb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_size, "MAX_BYTES", 64 * MEBIBYTE + 2)
    assert len(connection.request(bomb, "GET", "x").content) == 64 * MEBIBYTE + 2
