"""What MLflow's answers become on an operator's terminal, and which options a message may name."""

from __future__ import annotations

import io
import json
import os
import re
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from deploy.native import settings
from deploy.native.__main__ import parser
from deploy.native.accounts import Accounts
from deploy.native.settings import ServerError
from tests.support.commands import ROOT

# As MLflow 3.17 answers it: the message of its database, with what was to be inserted.
DUPLICATE = (
    "User (username=alice) already exists. Error: (psycopg.errors.UniqueViolation) duplicate key value violates unique "
    "constraint\n[SQL: INSERT INTO users (username, password_hash) VALUES (%(username)s, %(password_hash)s)]\n"
    "[parameters: {'username': 'alice', 'password_hash': 'scrypt:32768:8:1$salt$00ff'}]"
)


class Answer(io.BytesIO):
    """A response with a status, as http.client has it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text.encode())
        self.status = status


class Connection(HTTPConnection):
    """Sends nothing, and every request is answered alike."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("localhost")
        self._answer = answer

    def request(self, *_: object, **__: object) -> None:
        """Send nothing."""

    def getresponse(self) -> Any:
        return self._answer


def accounts(status: int, **answer: str) -> Accounts:
    return Accounts(lambda: Connection(Answer(status, json.dumps(answer))), "admin", "secret")


@pytest.mark.parametrize("code", ["RESOURCE_ALREADY_EXISTS", "INTERNAL_ERROR"])
def test_no_sql_and_no_hash_is_shown(code: str) -> None:
    with pytest.raises(ServerError) as refused:
        accounts(400, error_code=code, message=DUPLICATE).add_user("alice")
    words = str(refused.value)
    assert "SQL" not in words
    assert "hash" not in words
    assert "alice" in words


def test_who_is_there_already_is_told_with_the_next_step() -> None:
    there = accounts(400, error_code="RESOURCE_ALREADY_EXISTS", message=DUPLICATE)
    with pytest.raises(ServerError, match=r"^alice: is a user already\. Next: set-password alice"):
        there.add_user("alice")
    with pytest.raises(ServerError, match=r"^vision: is a team already\. Next: join vision USER"):
        there.add_team("vision")


@pytest.mark.parametrize("words", [["init"], ["restore", "backup"], ["start"]], ids=lambda words: words[0])
def test_root_is_advised_options_that_the_command_has(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("initgroups", "setgid", "setuid"):
        monkeypatch.setattr(os, name, lambda *_: None)
    monkeypatch.setattr(os, "execve", refuse)
    entry = settings.pwd.struct_passwd(("mlflow", "x", 999, 999, "", str(tmp_path), "/bin/sh"))
    monkeypatch.setattr(settings, "owner", lambda home: entry)
    with pytest.raises(ServerError, match="mlflow cannot run /root/python") as refused:
        settings.become_owner(tmp_path, "/root/python", words[0], words)
    advised = re.findall(r"(?:init )?--[a-z-]+", str(refused.value))
    assert advised
    for option in advised:
        command = ["init"] if option.startswith("init ") else words
        parser().parse_args([*command, option.removeprefix("init "), "value"])


def test_the_environment_of_a_server_is_not_the_repository_s() -> None:
    made = re.search(r"python3 -m venv (\S+)", (ROOT / "docs/server.md").read_text())
    assert made
    assert f"/{made[1]}/" in (ROOT / ".gitignore").read_text().splitlines()
