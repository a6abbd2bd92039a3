"""The process that runs a folder: how it is recognised, and that a run which may continue is never ended."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.commands import environment
from tests.support.folders import make_folder, wait_for, write_rows
from tracking.jobs.plan.repair import repair
from tracking.record import documents, run_folder, run_lock
from tracking.record.run_lock import Running

# Holds a folder and starts a process that inherits the lock and that nothing ends.
HOLDER = """
import subprocess, sys, pathlib
from tracking.record import run_lock
with run_lock.hold(pathlib.Path(sys.argv[1])) as descriptor:
    child = subprocess.Popen(["sleep", "600"], pass_fds=[descriptor], stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = make_folder(tmp_path, "http://127.0.0.1:9")
    write_rows(made, range(3))
    return made


@pytest.fixture
def holder(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process that holds the folder, and its child."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin
    assert process.stdout
    child = int(process.stdout.readline())
    with process:
        yield process, child
        if psutil.pid_exists(child):
            os.kill(child, signal.SIGKILL)
        process.stdin.close()


def leave(folder: Path, **changes: object) -> None:
    """Leave the folder as a launcher that is gone, with changes of what it had said of itself."""
    with run_lock.hold(folder):
        pass
    path = folder / run_folder.RUN_LOCK
    run_folder_id = path.stat().st_ino
    path.write_text(documents.to_json(documents.read_json(path) | changes))
    assert path.stat().st_ino == run_folder_id


@pytest.mark.slow
def test_a_run_goes_on_until_its_last_process_is_gone(folder: Path, holder: tuple[subprocess.Popen[str], int]) -> None:
    process, child = holder
    for ended in (False, True):
        with pytest.raises(Running, match=f"process {process.pid} on .* runs it") as caught:
            repair(folder, ended)
        assert caught.value.certain
    process.kill()
    process.wait()
    with pytest.raises(Running):  # the launcher is gone, and what it has started trains on
        repair(folder, ended=True)
    assert run_folder.read_result(folder) is None
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: not psutil.pid_exists(child))
    assert repair(folder)
    result = run_folder.read_result(folder)
    assert result
    assert result.failure
    assert (result.status, result.failure.kind) == ("killed", "signal:9")
    assert not repair(folder)  # it has one now


def test_two_cannot_run_a_folder(folder: Path) -> None:
    with run_lock.hold(folder), pytest.raises(Running, match=f"process {os.getpid()}"), run_lock.hold(folder):
        pass
    with run_lock.hold(folder):
        pass


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"host": "elsewhere", "boot_id": "another"}, "on elsewhere ran it, and from here it cannot be seen"),
        ({"boot_id": ""}, "cannot be seen"),
        ({"locks": False}, "cannot be seen"),
        ({"inode": 1}, "is a copy of a folder"),
    ],
)
def test_what_is_not_known_is_not_ended_unless_somebody_answers_for_it(
    folder: Path, changes: dict[str, object], words: str
) -> None:
    leave(folder, **changes)
    with pytest.raises(Running, match=words) as caught:
        repair(folder)
    assert not caught.value.certain
    assert run_folder.read_result(folder) is None
    assert repair(folder, ended=True)


def test_a_folder_that_says_nothing_is_not_ended_either(folder: Path) -> None:
    with pytest.raises(Running, match="names the process that runs it, is missing"):
        repair(folder)
    (folder / run_folder.RUN_LOCK).write_text("{")
    with pytest.raises(Running, match="does not name the process"):
        repair(folder)
    assert repair(folder, ended=True)


@pytest.mark.parametrize("name", [".follower", "../.owner"])
def test_a_run_whose_follower_or_sweep_goes_on_is_not_ended(tmp_path: Path, name: str) -> None:
    """Its own processes may be about to start."""
    sweep = make_folder(tmp_path, "http://127.0.0.1:9", "sweep", kind="sweep")
    folder = make_folder(sweep, "http://127.0.0.1:9", parent="..")
    with run_lock.hold(folder):
        pass
    with (folder / name).open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for ended in (False, True):
            with pytest.raises(Running) as caught:
                repair(folder, ended)
            assert caught.value.certain
    assert repair(folder)


def test_who_looks_for_a_moment_whether_a_folder_is_owned_hinders_no_owner(folder: Path) -> None:
    with (folder / run_folder.RUN_LOCK).open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        looking = threading.Timer(0.1, lambda: fcntl.flock(file, fcntl.LOCK_UN))
        looking.start()
        with run_lock.hold(folder):
            pass
        looking.join()


def test_a_lock_that_was_handed_over_lasts_when_its_maker_has_let_go(tmp_path: Path) -> None:
    owner = run_lock.make(tmp_path, "run")
    descriptor = os.dup(owner.descriptor)
    owner.let_go()
    with pytest.raises(Running), run_lock.hold(tmp_path / "run"):
        pass
    with run_lock.take(tmp_path / "run", inherited=descriptor):
        pass
    with run_lock.hold(tmp_path / "run"):
        pass


def test_a_copy_of_a_running_folder_is_not_ended(folder: Path, tmp_path: Path) -> None:
    with run_lock.hold(folder):
        shutil.copytree(folder, tmp_path / "copy")
        with pytest.raises(Running, match="copy"):
            repair(tmp_path / "copy")


def test_a_machine_that_was_started_anew_runs_nothing_of_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(folder, boot_id="the one before")
    with pytest.raises(Running, match="cannot be seen"):  # a machine of the same name has written since
        repair(folder)
    monkeypatch.setattr(psutil, "boot_time", lambda: time.time() + 1)
    assert repair(folder)


def test_a_file_system_without_locks_hinders_no_run_and_ends_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with run_lock.hold(folder):
        pass
    with pytest.raises(Running, match="cannot be seen"):
        repair(folder)


@pytest.mark.slow
def test_the_end_of_a_process_that_was_forked_unlocks_nothing(tmp_path: Path) -> None:
    holding = run_lock.hold(tmp_path)
    holding.__enter__()
    if not (child := os.fork()):
        try:
            holding.__exit__(None, None, None)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(run_lock.Running, match="runs it"), run_lock.hold(tmp_path):
        pass
    holding.__exit__(None, None, None)
    with run_lock.hold(tmp_path):
        pass
