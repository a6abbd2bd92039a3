"""Which imported files are watched for changes, and from when on."""

from __future__ import annotations

import importlib
import json
import sys
import sysconfig
from pathlib import Path

import pytest

from trainers.loop.worker.sources import Sources, is_installed


def test_python_and_packages_are_installed_and_a_clone_near_them_is_not() -> None:
    assert is_installed(json.__file__)
    assert is_installed(str(pytest.__file__))
    for folder in (Path(sys.prefix, "src"), Path(sys.base_prefix, "src"), Path(sysconfig.get_path("stdlib") + "-more")):
        assert not is_installed(str(folder / "clone/conf/schema.py"))


def test_an_edit_during_and_after_an_import_is_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "watched_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    edited = package / "edited.py"
    edited.write_text(f"import os\nos.utime({str(edited)!r}, (1, 1))\n")  # as it is being imported
    monkeypatch.syspath_prepend(tmp_path)
    sources = Sources()
    with sources.noted():
        importlib.import_module("watched_package")
    assert not sources.have_changed()
    with sources.noted():
        importlib.import_module("watched_package.edited")
    assert sources.have_changed()
    later = Sources()
    assert not later.have_changed()
    edited.unlink()
    assert later.have_changed()
    for name in ("watched_package.edited", "watched_package"):
        del sys.modules[name]
