"""Folders in runs_dir that others made, or that a machine left damaged: each one's trouble is its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.damage import DAMAGE, rewrite
from tests.support.folders import end, make_folder, write_rows
from tracking.__main__ import main
from tracking.analysis.results import FolderRuns
from tracking.jobs.follow import unfinished
from tracking.jobs.follow.sync import sync
from tracking.jobs.plan.repair import repair
from tracking.record import documents, journal, run_folder, run_lock
from tracking.store.mirror import Mirror
from tracking.store.server import TrackingUnavailable

RESULT = {"status": "finished", "metrics": {}}
RECORD = {"kind": "metrics", "time_ms": 1, "clock_sec": 1.0, "values": {"train/loss": 1.0}}


def left(root: Path, name: str) -> Path:
    folder = make_folder(root, f"sqlite:///{root.parent}/mlflow.db", name)
    write_rows(folder, range(2))
    with run_lock.hold(folder):
        end(folder)
    unfinished.mark(folder)
    return folder


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_bad_folder_is_named_and_the_others_go_on(damage: Callable[[Path], None], tmp_path: Path) -> None:
    root = tmp_path / "runs"
    folders = [left(root, name) for name in ("a", "b", "c")]
    damage(folders[1])
    told: list[str] = []
    assert [run.name for run in FolderRuns([root], told.append).find(["tests"])] == ["a", "c"]
    assert len(told) == 1
    assert str(folders[1]) in told[0]
    assert sorted(unfinished.look_back(root)[1], key=str) == folders
    [outcome] = sync([folders[1]])
    assert outcome.state == "failed"
    assert str(folders[1]) in outcome.message
    assert outcome.message.count("Next: ") == 1


def test_what_sync_leaves_says_what_to_do_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_down(mirror: Mirror) -> None:
        raise TrackingUnavailable("http://s: is down.")

    monkeypatch.setattr("tracking.jobs.follow.sync.MAX_ATTEMPTS", 1)
    monkeypatch.setattr(Mirror, "step", lambda mirror: 0)
    monkeypatch.setattr(Mirror, "finish", is_down)
    ended, running = left(tmp_path, "ended"), make_folder(tmp_path, "http://127.0.0.1:9", "running")
    with run_lock.hold(running):
        said = [outcome.message for outcome in sync([ended, running])]
    assert said[0] == "http://s: is down. Next: sync again when it answers"
    assert said[1].endswith(": its records so far are uploaded. Next: sync again once it has ended")


@pytest.mark.slow
@pytest.mark.usefixtures("mlflow_environment")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_sync_passes_over_every_bad_folder(
    tmp_path: Path, empty_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    root = tmp_path / "runs"
    for number, damage in enumerate(DAMAGE.values()):
        damage(left(root, f"bad{number}"))
    left(root, "good")
    main(["sync", str(root)])
    done = capsys.readouterr()
    lines = done.out.splitlines()
    assert len(lines) == len(DAMAGE) + 1, done.out + done.err
    assert sum(line.startswith("failed: ") for line in lines) == len(DAMAGE)
    assert f"complete: {root / 'good'}" in lines
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "odd",
    [
        {"values": None}, {"values": [1]}, {"time_ms": 10**30}, {"time_ms": "now"}, {"clock_sec": 10**400},
        {"step": "one"}, {"kind": "odd"}, {"key": 5}, {"value": {}, "kind": "event"},
    ],
    ids=str,
)  # fmt: skip
def test_a_line_of_a_journal_that_is_no_record_is_passed_over(odd: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("".join(json.dumps(content) + "\n" for content in (RECORD, RECORD | odd, RECORD)))
    assert len(list(journal.read(path))) == 2


def test_a_metric_that_no_float_holds_is_left_in_the_journal(tmp_path: Path) -> None:
    folder = left(tmp_path / "runs", "a")
    with (folder / run_folder.JOURNAL).open("a") as file:
        file.write(json.dumps(RECORD | {"values": {"huge": 10**400, "deep": 1.0}}) + "\n")
    [run] = FolderRuns([tmp_path]).find(["a"])
    assert "huge" not in run.metrics
    assert run.metrics["deep"] == 1.0


def test_a_sweep_ends_without_its_bad_jobs(tmp_path: Path) -> None:
    sweep = make_folder(tmp_path, "sqlite:///mlflow.db", "sweep", kind="sweep")
    documents.write_json(sweep / "sweep.json", {"argv": [], "jobs": []})
    for number, damage in enumerate(DAMAGE.values()):
        job = make_folder(sweep, "sqlite:///mlflow.db", f"job{number}", parent="..")
        end(job)
        damage(job)
        rewrite("config.yaml", ": {")(job)
    assert repair(sweep, ended=True)
    result = run_folder.read_result(sweep)
    assert result
