"""The chaos program plays its cases, and finds whatever is lost, doubled or wrong."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.chaos import count, foreign_folders, servers
from tests.chaos.__main__ import KINDS, LONG_MINUTES, Tally, cases, play
from tests.chaos.case import Case, Finding, Kind
from tests.chaos.new_databases import Local
from tests.support.faulty_proxy import FaultyProxy
from tests.support.folders import end, make_folder, write_rows
from tests.support.mlflow_server import MlflowServer
from tracking.jobs.follow.sync import sync
from tracking.record import run_folder
from tracking.record.journal import Journal

SEED = 7

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.mark.parametrize(
    ("kind", "variant"),
    [(foreign_folders.FOREIGN, "links"), pytest.param(servers.SERVER, "drop answer all", marks=pytest.mark.exhaustive)],
    ids=["links", "answers"],
)
def test_a_case_is_played_and_counted(
    kind: Kind, variant: str, server: MlflowServer, proxy: FaultyProxy, tmp_path: Path
) -> None:
    cwd, tally = tmp_path / "case", Tally()
    cwd.mkdir()
    play(kind, Case(kind.name, variant, SEED, cwd, server, proxy), tally)
    assert not tally.findings, tally.findings
    assert tally.rows[kind.name] > 0
    assert not cwd.exists()


def test_what_is_found_is_told_with_the_command_that_repeats_it(
    server: MlflowServer, proxy: FaultyProxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(case: Case) -> None:
        raise Finding("three rows are lost")

    tally = Tally()
    play(Kind("odd", ["one"], wrong), Case("odd", "one", SEED, tmp_path, server, proxy), tally)
    assert "three rows are lost" in str(tally)
    assert f"python -m tests.chaos --case 'odd/one' --seed {SEED}" in str(tally)
    assert str(tmp_path) in capsys.readouterr().out
    assert tmp_path.exists()


def test_every_kind_comes_early_and_every_variant_once_before_any_comes_again() -> None:
    first = list(itertools.islice(cases(list(KINDS), SEED, LONG_MINUTES), 5000))
    assert {kind.name for kind, _, _ in first[: len(KINDS)]} == {kind.name for kind in KINDS}
    assert first == list(itertools.islice(cases(list(KINDS), SEED, LONG_MINUTES), 5000))
    for kind in KINDS:
        variants = [variant for other, variant, _ in first if other is kind]
        assert variants.count("100 jobs") == (kind.once != "")
        rest = [variant for variant in variants if variant != kind.once]
        assert set(rest[: len(kind.variants)]) == set(kind.variants)
    assert all(variant != kind.once for kind, variant, _ in itertools.islice(cases(list(KINDS), SEED, 1), 200))


@pytest.fixture(scope="module")
def uploaded(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with mlflow.db, mlartifacts and the completely uploaded runs/run."""
    root = tmp_path_factory.mktemp("uploaded")
    shutil.copy(empty_database, root / "mlflow.db")
    folder = make_folder(root / "runs", f"sqlite:///{root}/mlflow.db")
    journal = Journal(folder / run_folder.JOURNAL)
    journal.params({"model": "quick"})
    journal.tags({"env.python": "3.11"})
    journal.close()
    write_rows(folder, range(3))
    (folder / "note.txt").write_text("as it is here")
    end(folder)
    [outcome] = sync([folder])
    assert outcome.state == "complete", outcome.message
    assert count.compare(folder, Local(root / "mlflow.db")) == (6, [])
    return root


def executed(sql: str) -> Callable[[Path], None]:
    def execute(root: Path) -> None:
        with closing(sqlite3.connect(root / "mlflow.db")) as database:
            assert database.execute(sql).rowcount > 0
            database.commit()

    return execute


def alter_file(root: Path) -> None:
    [path] = (root / "mlartifacts").rglob("note.txt")
    path.write_text("not as it is")


def write_one_more(root: Path) -> None:
    write_rows(root / "runs" / "run", range(3, 4))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (executed("delete from metrics where step = 1 and key = 'train/loss'"), "1 of 6 rows are lost"),
        (executed("update metrics set value = 7 where step = 1"), "2 rows are in no journal"),
        (executed("update params set value = 'other'"), "the param model is 'other'"),
        (executed("delete from tags where key = 'env.python'"), "the tag env.python is None"),
        (executed("update runs set status = 'RUNNING'"), "the status is RUNNING, not finished"),
        (executed("update runs set lifecycle_stage = 'deleted'"), "0 runs bear its uid"),
        (alter_file, "the file note.txt is another"),
        (write_one_more, "2 of 8 rows are lost"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_whatever_is_wrong_is_found(change: Callable[[Path], None], words: str, uploaded: Path, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(uploaded, root)
    with closing(sqlite3.connect(root / "mlflow.db")) as database:
        database.execute("update runs set artifact_uri = replace(artifact_uri, ?, ?)", (str(uploaded), str(root)))
        database.commit()
    change(root)
    _, wrong = count.compare(root / "runs" / "run", Local(root / "mlflow.db"))
    assert any(words in sentence for sentence in wrong), wrong
