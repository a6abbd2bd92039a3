"""An environment that a run uses stays as it is."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from conf.schema import ConfigError, StackConfig
from tracking.cli.stacks import remove_environments
from tracking.machine.stacks import environment_use, uv_environment
from tracking.machine.stacks.uv_environment import Environment

STACK = StackConfig("mine", "uv", torch="2.6.0")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an environment that was made by a stand-in of uv."""
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(environment_use, "_held", {})
    monkeypatch.setattr(uv_environment, "find_uv", lambda _: "uv")
    monkeypatch.setattr(uv_environment, "build", build)
    yield uv_environment.make(STACK).python.parents[2]
    for held in environment_use._held.values():
        held.close()


def build(stack: StackConfig, uv: str, folder: Path) -> Environment:
    (folder / "env/bin").mkdir(parents=True)
    (folder / "env/bin/python").touch()
    facts = {"declared": {}, "build_sec": 1.0, "size_bytes": 1}
    (folder / "complete.json").write_text(json.dumps(facts))
    made = uv_environment.read(folder)
    assert made
    return made


def ended() -> None:
    """The process that used the environment has ended."""
    for held in environment_use._held.values():
        held.close()
    environment_use._held.clear()


def test_while_another_process_uses_it_it_is_neither_removed_nor_made_anew(folder: Path) -> None:
    with Path(f"{folder}.used").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert uv_environment.make(STACK), "another run may use it too"
        answer = remove_environments([folder.name])
        assert (answer.exit_code, answer.document["removed"]) == (1, [])
        (folder / "complete.json").unlink()
        with pytest.raises(ConfigError, match="a run uses this environment"):
            uv_environment.make(STACK)
        assert (folder / "env/bin/python").exists()
    uv_environment.make(STACK)
    assert remove_environments([folder.name]).exit_code == 0
    assert not folder.exists()


def test_who_has_made_it_keeps_it_until_the_end(folder: Path) -> None:
    with Path(f"{folder}.used").open("ab") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ended()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_file_system_without_locks_is_no_hindrance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    ended()
    monkeypatch.setattr(fcntl, "flock", flock)
    environment_use.hold(folder)
    with environment_use.alone(folder):
        pass
