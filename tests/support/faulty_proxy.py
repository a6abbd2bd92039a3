"""An HTTP proxy in front of a real server that fails in the ways networks and servers do, one request at a time."""

from __future__ import annotations

import select
import socket
import socketserver
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Answers that look like successes, although the request never reaches the server.
FALSE_ANSWERS = {
    "empty answer": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 0\r\n",
    "login page": "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 23\r\n",
    "login redirect": "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n",
    "false acknowledgement": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n",
}
BODIES = {"login page": b"<html>Who is it?</html>", "false acknowledgement": b"{}"}
FAULTS = (
    "hang", "drop request", "drop answer", "cut answer", "status 500", "status 503", "status 429", "refuse",
    "empty answer", "login page", "login redirect", "drip", "reset",
)  # fmt: skip
DRIP_SEC = 0.1  # from one byte of an answer to the next


class FaultyProxy:
    """`with FaultyProxy(port) as proxy:` passes requests on to that loopback port; `proxy.fault` is what befalls them.

    None: nothing. "hang": no answer while this is the fault. "drop request": the connection ends and the server never
    sees the request. "drop answer": the server has done it, and the connection ends without a word. "cut answer": the
    same within the answer. "drip": the answer comes byte by byte while this is the fault. "reset": the server has done
    it, and the connection is torn down as by a firewall. "status N": an answer of the proxy's own, with `retry_after`
    where that is set. "slow": the answer comes `delay_sec` late. "refuse": nobody listens. One of FALSE_ANSWERS: that
    answer, in the server's place.
    `counts` has how many requests each of them hit.
    """

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.delay_sec = 0.0
        self.retry_after = ""
        self.only = b""  # what the request must contain in its head for the fault to strike
        self.counts: Counter[str] = Counter()
        self.times: list[float] = []  # every request's arrival, in monotonic seconds
        self._fault: str | None = None
        self._server: socketserver.ThreadingTCPServer | None = None
        self.port = 0

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def fault(self) -> str | None:
        return self._fault

    @fault.setter
    def fault(self, fault: str | None) -> None:
        self._fault = fault
        if fault == "refuse":
            self._close()
        elif self._server is None:
            self._listen()

    @contextmanager
    def failing(self, fault: str) -> Iterator[None]:
        self.fault = fault
        try:
            yield
        finally:
            self.fault = None

    def __enter__(self) -> FaultyProxy:
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._fault = "over"  # ends what hangs
        self._close()

    def _listen(self) -> None:
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    proxy._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def _close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _serve(self, client: socket.socket) -> None:
        """One request a connection: an answer says so with `Connection: close`."""
        head, body = read_head(client)
        if not head:
            return
        self.times.append(time.monotonic())
        fault = self._fault if self.only in head else None
        if fault:
            self.counts[fault] += 1
        if fault == "hang":
            while self._fault == "hang" and not select.select([client], [], [], 0.05)[0]:
                pass  # readable: the client has gone
            return
        if fault in ("drop request", "refuse", "over"):
            return
        if fault in FALSE_ANSWERS or b" /login " in head:
            drain(client, head, body)
            client.sendall(false_answer("login page" if b" /login " in head else str(fault)))
            return
        if fault and fault.startswith("status"):
            drain(client, head, body)
            client.sendall(own_answer(int(fault.split()[1]), self.retry_after))
            return
        answer = self._pass_on(client, head, body)
        if fault == "slow":
            time.sleep(self.delay_sec)
        if fault == "cut answer":
            answer = answer[: len(answer) - max(1, len(answer.partition(b"\r\n\r\n")[2]) // 2)]
        if fault == "drip":
            while self._fault == "drip" and len(answer) > 1:
                client.sendall(answer[:1])
                answer = answer[1:]
                time.sleep(DRIP_SEC)
        if fault == "reset":  # closed so, the kernel says RST
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        elif fault != "drop answer":
            client.sendall(answer)

    def _pass_on(self, client: socket.socket, head: bytes, body: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.upstream)) as server:
            lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
            server.sendall(b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body)
            left = content_length(head) - len(body)
            while left > 0 and (chunk := client.recv(min(left, 2**20))):
                server.sendall(chunk)
                left -= len(chunk)
            return b"".join(iter(lambda: server.recv(2**16), b""))


def read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """A request's line and headers, and what of its body came with them."""
    received = b""
    while b"\r\n\r\n" not in received:
        if not (chunk := client.recv(2**16)):
            return b"", b""
        received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    return head, body


def content_length(head: bytes) -> int:
    lines = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return int(lines[0]) if lines else 0


def drain(client: socket.socket, head: bytes, body: bytes) -> None:
    left = content_length(head) - len(body)
    while left > 0 and (chunk := client.recv(min(left, 2**20))):
        left -= len(chunk)


def false_answer(fault: str) -> bytes:
    return f"{FALSE_ANSWERS[fault]}Connection: close\r\n\r\n".encode() + BODIES.get(fault, b"")


def own_answer(status: int, retry_after: str) -> bytes:
    body = b"the proxy says no"
    lines = [f"HTTP/1.1 {status} No", f"Content-Length: {len(body)}", "Connection: close"]
    if retry_after:
        lines.append(f"Retry-After: {retry_after}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
