"""A launch finds unfinished runs of earlier launches quickly, and leaves those in use alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.folders import end, make_folder, write_rows
from tracking.jobs.follow import unfinished
from tracking.jobs.plan.repair import repair
from tracking.record import documents, run_folder, run_lock
from tracking.store.mirror.state import MirrorState, save, signatures


def left(root: Path, name: str, *, result: bool = True) -> Path:
    """A run's folder as its launcher leaves it, with its mark."""
    folder = make_folder(root, "http://127.0.0.1:9", name)
    write_rows(folder, range(2))
    with run_lock.hold(folder):
        pass
    if result:
        end(folder)
    unfinished.mark(folder)
    return folder


def uploaded(folder: Path) -> None:
    size = (folder / run_folder.JOURNAL).stat().st_size
    state = MirrorState(
        "http://127.0.0.1:9", offset=size, status="FINISHED", artifacts=signatures(folder), compared=True
    )
    save(folder, state)


def test_what_is_cut_off_is_ended_what_is_left_is_named_and_the_rest_is_nobodys_business(tmp_path: Path) -> None:
    cut_off, waiting, done, gone = (
        left(tmp_path, "a-cut-off", result=False), left(tmp_path, "b-waiting"), left(tmp_path, "c-done"),
        left(tmp_path, "d-gone"),
    )  # fmt: skip
    running, other_machine = left(tmp_path, "e-running", result=False), left(tmp_path, "f-far", result=False)
    uploaded(done)
    gone.rename(tmp_path / "moved")
    path = other_machine / run_folder.RUN_LOCK
    path.write_text(documents.to_json(documents.read_json(path) | {"host": "far", "boot_id": "other"}))
    with run_lock.hold(running):
        assert unfinished.look_back(tmp_path) == ([cut_off], [waiting])
    result = run_folder.read_result(cut_off)
    assert result
    assert result.status == "killed"
    names = {mark.name for mark in (tmp_path / unfinished.MARKS).iterdir()}
    assert names == {"a-cut-off", "b-waiting", "e-running", "f-far"}
    uploaded(waiting)
    with run_lock.hold(running):
        assert unfinished.look_back(tmp_path) == ([], [cut_off])


def test_what_a_launcher_was_making_when_it_was_killed_is_removed_and_nothing_else(tmp_path: Path) -> None:
    def making(name: str, *names: str) -> run_lock.Owner:
        owner = run_lock.make(tmp_path, name)
        for inner in names:
            (owner.folder / inner).touch()
        return owner

    making("killed", ".result.reserve", ".run.json.1.tmp").let_go()
    making("killed-sweep", "sweep.json", "view.json").let_go()
    making("of-the-users", "notes.txt").let_go()
    (tmp_path / "empty").mkdir()
    left(tmp_path, "run")
    with making("being-made", ".result.reserve"):
        unfinished.remove_half_made(tmp_path)
        names = {path.name for path in tmp_path.iterdir()} - {unfinished.MARKS}
    assert names == {"of-the-users", "empty", "run", "being-made"}


def test_what_was_half_written_goes_with_its_writer(tmp_path: Path) -> None:
    folder = left(tmp_path, "run", result=False)
    gone, there = 2**22 + 1, os.getpid()  # above the largest number of a process
    for name in (f".config.yaml.{gone}.tmp", f".mirror.json.{there}.tmp", ".notes.tmp"):
        (folder / name).touch()
    assert repair(folder)
    assert {path.name for path in folder.glob(".*.tmp")} == {f".mirror.json.{there}.tmp", ".notes.tmp"}


def test_a_run_of_a_machine_that_has_long_been_silent_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = left(tmp_path, "far", result=False)
    path = far / run_folder.RUN_LOCK
    path.write_text(documents.to_json(documents.read_json(path) | {"host": "far", "boot_id": "other"}))
    monkeypatch.setattr(unfinished, "SILENT_SEC", -1.0)
    assert unfinished.look_back(tmp_path) == ([], [far])
    assert run_folder.read_result(far) is None


def test_thousands_of_folders_cost_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those without a mark are neither listed nor read."""
    for number in range(100):
        (tmp_path / f"run{number}").mkdir()
        (tmp_path / f"run{number}" / run_folder.RUN).write_text("{")  # reading it would be an error
    waiting = left(tmp_path, "waiting")
    listed: list[Path] = []

    def seen(path: Path | str | int) -> None:
        listed.append(Path(f"/proc/self/fd/{path}").readlink() if isinstance(path, int) else Path(path))

    for name in ("listdir", "scandir"):
        listing = getattr(os, name)
        monkeypatch.setattr(os, name, lambda path, listing=listing: (seen(path), listing(path))[1])
    assert unfinished.look_back(tmp_path) == ([], [waiting])
    assert tmp_path / unfinished.MARKS in listed
    assert not [path for path in listed if path == tmp_path or path.name.startswith("run")]
