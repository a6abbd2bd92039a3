"""What the tests of several files here start from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.faulty_proxy import FaultyProxy
from tests.support.mlflow_server import MlflowServer
from tests.support.undrawn import Undrawn
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


@pytest.fixture(scope="module", autouse=True)
def no_pictures_of_fixtures(request: pytest.FixtureRequest) -> Iterator[None]:
    """As `no_pictures`, of the fixtures that the tests of a file share."""
    with pytest.MonkeyPatch.context() as patch:
        choose_pictures(request.node, patch)
        yield


@pytest.fixture(autouse=True)
def no_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are made without drawing, which takes most of their time, but where a test says that it looks at them."""
    choose_pictures(request.node, monkeypatch)


def choose_pictures(node: pytest.Item | pytest.Collector, patch: pytest.MonkeyPatch) -> None:
    """Only tests of reports themselves build figures without being asked; the others make reports for other reasons."""
    if "tracking.analysis.report.pictures.plot" not in sys.modules:
        return
    from tracking.analysis.report.pictures import drawing

    figure, pictures = drawn_figure(), node.get_closest_marker("pictures")
    draw = drawing.png if pictures else lambda figure: b"\x89PNG, not drawn"
    patch.setattr("tracking.analysis.report.pictures.plot.png", draw)
    builds = pictures or "tracking/analysis/report/" in str(node.path)
    patch.setattr("matplotlib.figure.Figure", figure if builds else Undrawn)


@cache
def drawn_figure() -> type:
    """Matplotlib's own, which no test has replaced when this is called first."""
    from matplotlib.figure import Figure

    return Figure


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file mlflow.db with MLflow's tables, for tests to copy. Making them takes ten seconds, once a machine."""
    from tracking.store.server import empty_database

    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    empty_database.create(path)
    return path
