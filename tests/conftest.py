"""What tests of several folders share: one server of a team for the whole session."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.team_server import TeamServer

# Whoever runs the tests in the background of a script has them ignore Ctrl-C, and what they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def team_server() -> Iterator[TeamServer]:
    with TeamServer() as server:
        yield server
