"""A large body is refused before it was sent, unless its sender is known and it is an artifact."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl

import pytest

from deploy.guard import gate
from tests.support.commands import HANGS_SEC
from tests.support.team_server import Asker, TeamServer

pytestmark = [pytest.mark.service, pytest.mark.slow]
HUGE = 300 * 1024**2
SEARCH = "/api/2.0/mlflow/runs/search"
ARTIFACT = "/api/2.0/mlflow-artifacts/artifacts/0/x/artifacts/huge.bin"
PATHS = [
    SEARCH,
    "/ajax-api/2.0/mlflow/runs/search",
    ARTIFACT,
    "/health",
    "/api/3.0/mlflow/server-info",
    "/",
    "/nowhere",
]


def begin(
    server: TeamServer, method: str, path: str, size: int, who: str = "", chunked: bool = False
) -> tuple[int, str]:
    """Status and text of the answer to a request that sends the first 1 MB at most, and waits for it then."""
    context = ssl.create_default_context(cafile=str(server.certificate))
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    basic = f"Authorization: Basic {base64.b64encode(who.encode()).decode()}\r\n" if who else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{basic}{length}\r\n\r\n"
    piece = b" " * 2**16
    plain = socket.create_connection(("localhost", server.port), timeout=HANGS_SEC)
    with context.wrap_socket(plain, server_hostname="localhost") as connection:
        connection.sendall(head.encode())
        for _ in range(min(16, size // len(piece))):
            connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        answer = http.client.HTTPResponse(connection, method=method)
        answer.begin()
        return answer.status, answer.read().decode(errors="replace")


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
@pytest.mark.parametrize("path", PATHS)
def test_a_stranger_is_answered_before_the_body_was_sent(
    team_server: TeamServer, path: str, method: str, chunked: bool
) -> None:
    status, text = begin(team_server, method, path, HUGE, chunked=chunked)
    assert status == 401
    assert "give a user and a password" in text


def test_a_wrong_password_is_refused_before_the_body_was_sent_and_counted(team_server: TeamServer) -> None:
    team_server.account("add-user", "sends-much")
    seen = [begin(team_server, "POST", SEARCH, HUGE, f"sends-much:wrong {n}")[0] for n in range(12)]
    assert seen == [401] * 10 + [429] * 2


def test_a_user_sends_no_more_than_fits_into_memory(team_server: TeamServer) -> None:
    password = team_server.account("add-user", "sends-too-much").strip()
    who = f"sends-too-much:{password}"
    status, text = begin(team_server, "POST", SEARCH, HUGE, who)
    assert status == 413, text
    assert "Allowed, except for artifacts" in text
    assert begin(team_server, "POST", SEARCH, HUGE, who, chunked=True)[0] == 411
    # A path that only the proxy would take for that of an artifact.
    status, _ = begin(team_server, "PUT", "/x/../api/2.0/mlflow-artifacts/artifacts/0/x", HUGE, who)
    assert status == 413


def test_large_requests_of_users_pass(team_server: TeamServer) -> None:
    experiment = team_server.accounts.experiment_id("large")
    user = Asker(team_server, "admin", team_server.admin_password)
    run = user("POST", "/api/2.0/mlflow/runs/create", json={"experiment_id": experiment}).json()["run"]["info"][
        "run_id"
    ]
    metrics = [{"key": f"{'k' * 200}{n}", "value": n, "timestamp": n, "step": n} for n in range(1000)]
    assert user("POST", "/api/2.0/mlflow/runs/log-batch", json={"run_id": run, "metrics": metrics}).ok
    path = f"/api/2.0/mlflow-artifacts/artifacts/{experiment}/{run}/artifacts"
    content = bytes(range(256)) * (4 * gate.MAX_UNKNOWN_BYTES // 256) + b"end"
    assert user("PUT", f"{path}/whole.bin", data=content).ok
    assert user("PUT", f"{path}/chunked.bin", data=iter([content[:1000], content[1000:]])).ok
    for name in ("whole", "chunked"):
        assert user("GET", f"{path}/{name}.bin").content == content
    assert user("PUT", f"{path}/larger.bin", data=bytes(gate.MAX_IN_MEMORY_BYTES + 1)).ok
