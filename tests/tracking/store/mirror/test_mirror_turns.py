"""Mirrors of one folder take turns; where the file system has no locks, they go on without."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from tests.support.folders import make_folder
from tracking.record import run_lock
from tracking.store.mirror import mirror
from tracking.store.mirror.mirror import Mirror


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path, f"sqlite:///{tmp_path / 'mlflow.db'}")


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_a_file_system_without_locks_is_mirrored(folder: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def flock(file: object, kind: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with Mirror(folder)._locked(), Mirror(folder)._locked():
        assert (folder / mirror.LOCK).exists()


def test_a_mirror_waits_for_another_and_then_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "LOCKED_SEC", 0.0)
    words = rf"is being uploaded \(process {os.getpid()} on .* runs it\)\. Next: "
    with Mirror(folder)._locked(), pytest.raises(TimeoutError, match=words):
        Mirror(folder).step()
    with Mirror(folder)._locked(), run_lock.take(folder):  # the run's own lock is another
        pass
