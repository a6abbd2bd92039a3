"""What the tests of several files here start from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.faulty_proxy import FaultyProxy
from tests.support.mlflow_server import MlflowServer
from tracking.store.mirror import mirror


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    """One for all tests, since it takes 5 to 20 s to start; a test that kills it starts it again."""
    with MlflowServer(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def proxy(server: MlflowServer) -> Iterator[FaultyProxy]:
    with FaultyProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def mlflow_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The mirror's settings for MLflow, and nothing of the user's."""
    for name in [name for name in os.environ if name.startswith("MLFLOW_TRACKING")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))  # no ~/.mlflow/credentials
    monkeypatch.setattr("tracking.store.server.recipients._allowed_uris", set())
    for name, value in mirror.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True)
def no_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are made without drawing, which takes most of their time, but where a test says that it looks at them."""
    if "tracking.analysis.report.pictures.plot" in sys.modules and not request.node.get_closest_marker("pictures"):
        monkeypatch.setattr("tracking.analysis.report.pictures.plot.png", lambda figure: b"\x89PNG, not drawn")


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file mlflow.db with MLflow's tables, for tests to copy. Making them takes ten seconds, once a machine."""
    from tracking.store.server import empty_database

    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    empty_database.create(path)
    return path
