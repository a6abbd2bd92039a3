"""Bytecode of workers whose Python keeps none lies in the cache, under its rules."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from conf.schema import StackConfig
from tracking.machine.environment import Sources, bytecode_variables, cache, own_sources
from tracking.machine.stacks import interpreter

FORBIDDEN = {"PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "torch").mkdir()
    return Sources(tmp_path / "torch", "cpython-311")


def kept_in_cache() -> dict[str, str]:
    return {"PYTHONPYCACHEPREFIX": str(cache() / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}


def test_where_python_may_write_none_it_is_kept_in_the_cache(sources: Sources) -> None:
    assert bytecode_variables({}, sources) == {}
    assert bytecode_variables(FORBIDDEN, sources, make=False) == kept_in_cache()
    assert not cache().exists()
    assert bytecode_variables(FORBIDDEN, sources) == kept_in_cache()
    assert (cache() / "bytecode").stat().st_mode & 0o777 == 0o700


def test_where_python_cannot_write_it_is_kept_in_the_cache(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != sources.folder)
    assert bytecode_variables({}, sources) == kept_in_cache()


def test_bytecode_that_is_there_is_used_if_it_is_of_this_python(sources: Sources) -> None:
    (sources.folder / "__pycache__").mkdir()
    (sources.folder / "__pycache__/__init__.cpython-312.pyc").touch()
    assert bytecode_variables(FORBIDDEN, sources) == kept_in_cache()
    (sources.folder / "__pycache__/__init__.cpython-311.pyc").touch()
    assert bytecode_variables(FORBIDDEN, sources) == {}


def test_a_folder_of_the_user_s_own_stays(sources: Sources) -> None:
    assert bytecode_variables({**FORBIDDEN, "PYTHONPYCACHEPREFIX": "/mine"}, sources) == {}


def test_nothing_is_said_of_a_python_that_holds_no_torch() -> None:
    assert bytecode_variables(FORBIDDEN, None) == {}
    assert own_sources("no_such_package") is None
    own = own_sources()
    assert own is not None
    assert (own.folder / "__init__.py").is_file()


@pytest.mark.slow
def test_another_python_says_where_its_torch_lies() -> None:
    assert interpreter.probe(StackConfig(), sys.executable).sources == own_sources()


def test_bytecode_of_another_user_is_not_executed_and_that_is_said(
    sources: Sources, capsys: pytest.CaptureFixture[str]
) -> None:
    if os.geteuid():
        pytest.skip("needs root, to give a file to another user")
    bytecode_variables(FORBIDDEN, sources)
    (cache() / "bytecode/theirs.pyc").touch()
    os.chown(cache() / "bytecode/theirs.pyc", 54_321, 54_321)
    assert bytecode_variables(FORBIDDEN, sources) == {}
    assert "theirs.pyc belongs to user 54321. Next: remove it" in capsys.readouterr().err
    cache().chmod(0o777)
    assert bytecode_variables(FORBIDDEN, sources) == {}
