"""What tests of several folders share: one server of a team for the whole session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.team_server import TeamServer


@pytest.fixture(scope="session")
def team_server() -> Iterator[TeamServer]:
    with TeamServer() as server:
        yield server
