"""Cached files: a damaged one is made anew, by a single process. The others wait for it, with a limit."""

from __future__ import annotations

import fcntl
from pathlib import Path

import numpy as np
import pytest

from conf.schema import ConfigError
from tracking.machine.environment import cache
from trainers.data.cached import Arrays, cached_arrays, cached_folder, folders
from trainers.data.cached.work_shares import in_shares, num_shares

LARGE = 200_000  # 1.6 MB of int64, which are mapped


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))


def arrays(value: int) -> Arrays:
    return cached_arrays("room", [], "", 1, lambda: {"small": np.full(3, value), "large": np.full(LARGE, value)})


def kept() -> Path:
    [folder] = (path.parent for path in cache().glob("room/*/*/large.npy"))
    return folder


def test_arrays_are_made_once_and_mapped() -> None:
    arrays(1)
    again = arrays(2)
    assert {name: (len(array), int(array[0])) for name, array in again.items()} == {
        "small": (3, 1),
        "large": (LARGE, 1),
    }
    assert isinstance(again["large"], np.memmap)


@pytest.mark.parametrize(
    ("name", "content"),
    [("small.npy", None), ("large.npy", b""), ("large.npy", b"torn"), ("sizes.json", b"{"), ("sizes.json", b"[]")],
)
def test_arrays_that_are_not_whole_are_made_anew_and_that_is_said(
    name: str, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays(1)
    file = kept() / name
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    assert not capsys.readouterr().err
    assert int(arrays(2)["small"][0]) == 2
    assert "it is made anew" in capsys.readouterr().err
    assert int(arrays(3)["large"][-1]) == 2
    assert not capsys.readouterr().err


def make(folder: Path, lock: int | None) -> None:
    (folder / "file").write_text("whole")


def trouble(folder: Path) -> str:
    return "" if (folder / "file").read_text() == "whole" else "file has changed"


def test_a_folder_in_the_cache_that_is_not_whole_is_made_anew_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = cached_folder("set-v1", "set", None, make, trouble)
    (root / "file").write_text("torn")
    assert not capsys.readouterr().err
    assert cached_folder("set-v1", "set", None, make, trouble) == root
    assert f"{root}: is not used, because file has changed; it is made anew" in capsys.readouterr().err
    assert (root / "file").read_text() == "whole"
    assert {path.name for path in root.parent.iterdir()} == {"set-v1", ".set-v1.lock"}


def test_a_folder_of_the_user_s_that_is_not_whole_is_left_alone(tmp_path: Path) -> None:
    root = cached_folder("set-v1", "set", str(tmp_path), make, trouble)
    (root / "file").write_text("torn")
    with pytest.raises(
        ConfigError, match=r"the generated set in .* is damaged: file has changed. Next: delete the folder"
    ):
        cached_folder("set-v1", "set", str(tmp_path), make, trouble)
    assert (root / "file").read_text() == "torn"


def test_a_maker_that_hangs_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever has waited too long makes it for itself, and leaves alone what the other one has begun."""
    monkeypatch.setattr(folders, "WAIT_SEC", 0.1)
    arrays(1)
    (kept() / "small.npy").unlink()
    begun = cache() / ".set-v1.partial"
    begun.mkdir()
    with (kept().parent / ".lock").open("w") as first, (cache() / ".set-v1.lock").open("w") as second:
        for lock in (first, second):
            fcntl.flock(lock, fcntl.LOCK_EX)
        assert (int(arrays(2)["small"][0]), int(arrays(3)["small"][0])) == (2, 3)
        root = cached_folder("set-v1", "set", None, make, trouble)
    assert trouble(root) == ""
    assert begun.is_dir()
    assert "another process has held its lock for 0.1 s; not waiting" in capsys.readouterr().err
    assert (int(arrays(4)["small"][0]), int(arrays(5)["small"][0])) == (4, 4)


def test_a_share_is_worth_a_process_and_has_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))
    assert [num_shares(amount, 10) for amount in (1, 10, 11, 1000)] == [1, 1, 2, 4]


@pytest.mark.slow
def test_a_process_that_fails_fails_the_whole() -> None:
    with pytest.raises(RuntimeError, match=r"ended with exit code 2: .*--size"):
        in_shares("trainers.data.latent_factors", [], 1)
