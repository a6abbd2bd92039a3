"""MLflow's store and rows that it already has, on SQLite and PostgreSQL; and a database that goes away."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.commands import HANGS_SEC
from tests.support.folders import end, make_folder, wait_for, write_rows
from tests.support.mlflow_server import MlflowServer
from tests.support.postgresql import Postgresql
from tests.support.rows import as_stored, expected_rows, query
from tracking.jobs.follow.mirror_thread import MirrorThread
from tracking.store.mirror.mirror import Mirror

pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ROWS = "select key, value, timestamp, step, is_nan from metrics where run_uuid = '{}'"
VALUES = [
    0.0, -0.0, 1.0, -1.5, 0.1, 1 / 3, 2.0**53 + 2, 5e-324, sys.float_info.min, sys.float_info.max, -sys.float_info.max,
    math.pi, 1e22, 123456789.123456789, math.nan, math.inf, -math.inf,
]  # fmt: skip


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Postgresql]:
    with Postgresql() as database:
        yield database


@pytest.fixture(scope="module")
def on_postgresql(postgresql: Postgresql, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with MlflowServer(tmp_path_factory.mktemp("server"), postgresql.uri) as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def store(request: pytest.FixtureRequest) -> tuple[str, Callable[[str], list[tuple]]]:
    """A server's address, and how its database is asked."""
    if request.param == "sqlite":
        running = request.getfixturevalue("server")
        return running.uri, lambda sql: query(running, sql)
    database = request.getfixturevalue("postgresql")
    return request.getfixturevalue("on_postgresql").uri, database.query


@pytest.mark.slow
def test_a_row_that_the_store_has_is_ignored_whatever_its_value(
    store: tuple[str, Callable[[str], list[tuple]]],
) -> None:
    """A row is key, timestamp, step and value. NaN is kept as a flag, infinity as the largest float, -0.0 as 0.0."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    uri, ask = store
    client = MlflowClient(uri)
    run_id = client.create_run("0").info.run_id
    rows = [Metric("loss", value, 1000 + index, index) for index, value in enumerate(VALUES)]
    client.log_batch(run_id, rows)
    before = sorted(ask(ROWS.format(run_id)))
    assert len(before) == len(VALUES)
    stored = [value for _, value, *_ in sorted(before, key=lambda row: row[3])]
    assert stored == [as_stored(value) for value in VALUES]
    new = Metric("loss", 7.0, 1, 1)
    for again in ([*rows, *rows], [*rows[::-1], new], [Metric("loss", -0.0, 1000, 0)], [rows[0], rows[14], new]):
        client.log_batch(run_id, again)
    assert sorted(ask(ROWS.format(run_id))) == sorted([*before, ("loss", 7.0, 1, 1, before[0][4])])
    for other in (Metric("loss", 0.0, 1000, 1), Metric("loss", 0.0, 1001, 0), Metric("lass", 0.0, 1000, 0)):
        client.log_batch(run_id, [other])
    assert len(ask(ROWS.format(run_id))) == len(VALUES) + 4


@pytest.mark.service
def test_a_server_whose_database_is_killed_loses_nothing(
    postgresql: Postgresql, on_postgresql: MlflowServer, tmp_path: Path
) -> None:
    folder = make_folder(tmp_path, on_postgresql.uri)
    write_rows(folder, range(3000))
    thread = MirrorThread(folder, interval_sec=0.05).start()
    wait_for(lambda: thread.mirror.state.offset > 0)
    postgresql.kill()
    write_rows(folder, range(3000, 3100))
    wait_for(lambda: thread.status)
    end(folder)
    postgresql.start()
    assert thread.close(wait_sec=HANGS_SEC), thread.status
    rows = postgresql.query(ROWS.format(Mirror(folder).run_id))
    assert sorted(rows) == expected_rows(folder)
    assert len(rows) == 6200
    assert postgresql.query(f"select status from runs where run_uuid = '{Mirror(folder).run_id}'") == [("FINISHED",)]
