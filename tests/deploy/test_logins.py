"""Logins: wrong passwords are counted, many clients of one user pass, and the refusal of a token says why."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from deploy.guard import failures
from tests.support.team_server import Asker, TeamServer

pytestmark = [pytest.mark.service, pytest.mark.slow]
SEARCH = "/api/2.0/mlflow/experiments/search"


def test_wrong_passwords_are_counted_and_then_refused(team_server: TeamServer) -> None:
    password = team_server.account("add-user", "guessed").strip()
    seen = []
    for guess in range(40):
        answer = Asker(team_server, "guessed", f"wrong {guess}")("POST", SEARCH, json={"max_results": 1})
        seen.append(answer.status_code)
    assert seen == [401] * failures.MAX_PER_USER + [429] * (40 - failures.MAX_PER_USER)
    assert 0 < int(answer.headers["Retry-After"]) <= failures.WINDOW_SEC
    assert "too many wrong passwords for guessed" in answer.json()["message"]
    # The right one is not looked at either, or it would stand out; nor by the routes that go past Flask.
    assert Asker(team_server, "guessed", password)("POST", SEARCH, json={"max_results": 1}).status_code == 429
    artifact = "/api/2.0/mlflow-artifacts/artifacts/0/x"
    assert Asker(team_server, "guessed", password)("GET", artifact).status_code == 429
    # Another user of the same address goes on, and the operator.
    assert Asker(team_server, "admin", team_server.admin_password)("POST", SEARCH, json={"max_results": 1}).ok
    assert "user guessed" in team_server.account("users")


def test_attempts_at_once_are_counted_too(team_server: TeamServer) -> None:
    team_server.account("add-user", "rushed")
    with ThreadPoolExecutor(24) as pool:
        asked = [
            pool.submit(Asker(team_server, "rushed", f"wrong {n}"), "POST", SEARCH, json={"max_results": 1})
            for n in range(48)
        ]
        seen = [request.result().status_code for request in asked]
    workers = json.loads((team_server.home / "settings.json").read_text())["workers"]
    assert failures.MAX_PER_USER <= seen.count(401) <= failures.MAX_PER_USER + workers


def test_32_mirrors_of_one_user_pass(team_server: TeamServer) -> None:
    password = team_server.account("add-user", "many").strip()
    with ThreadPoolExecutor(32) as pool:
        asked = [
            pool.submit(Asker(team_server, "many", password), "POST", SEARCH, json={"max_results": 1})
            for _ in range(32 * 4)
        ]
        assert {request.result().status_code for request in asked} == {200}


@pytest.mark.parametrize(
    "given",
    ["Bearer abc.def", "Bearer", "Basic", "Basic !!!", "Basic YQBiOmM=", "Basic YWxpY2U=", "Digest username=a", ""],
)
@pytest.mark.parametrize("path", [SEARCH, "/api/2.0/mlflow-artifacts/artifacts/0/x", "/"])
def test_what_is_no_password_is_refused_in_words(team_server: TeamServer, given: str, path: str) -> None:
    method = "POST" if path == SEARCH else "GET"
    answer = Asker(team_server)(method, path, json={"max_results": 1}, headers={"Authorization": given})
    assert answer.status_code == 401, answer.text
    assert "give a user and a password" in answer.text or "not authenticated" in answer.text
