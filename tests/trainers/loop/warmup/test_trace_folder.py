"""Traces are kept where this user alone writes, and only if they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracking.machine.compiled import contents
from trainers.loop.warmup import keep_traces, trace_folder
from trainers.loop.warmup.trace_folder import VARIABLE, TraceFolder
from trainers.ops import compiling


def test_what_is_written_is_read_and_exported(tmp_path: Path) -> None:
    folder = TraceFolder(tmp_path / "traces")
    assert folder.read("f0") is None
    folder.write("f0", b"content")
    assert folder.read("f0") == b"content"
    [file] = (tmp_path / "traces").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert contents.is_carried(Path("timetrial/traces") / file.name)


def test_a_trace_that_others_may_have_written_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trace_folder, "check_way", lambda path: True)  # as if others could enter pytest's folder
    folder = TraceFolder(tmp_path / "traces")
    folder.write("f0", b"content")
    assert folder.read("f0")
    (tmp_path / "traces/f0.trace").chmod(0o666)
    assert folder.read("f0") is None
    assert "not used, since" in caplog.text


def test_traces_are_kept_only_if_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "keeper", None)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    keep_traces()
    assert compiling.keeper is None
    monkeypatch.setenv(VARIABLE, "1")
    keep_traces()
    assert compiling.keeper is not None
