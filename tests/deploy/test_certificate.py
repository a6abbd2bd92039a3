"""The certificate that a server makes for itself: kept, unless it lacks a name; the operator's own is left alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from deploy.native import certificate

pytestmark = pytest.mark.slow


def test_it_is_made_once_and_anew_for_a_name_that_it_lacks(tmp_path: Path) -> None:
    path, key = tmp_path / "tls/certificate.pem", tmp_path / "tls/key.pem"
    names = ["mlflow.example.org", "10.0.0.7"]
    assert not certificate.ensure(names, tmp_path / "tls")
    first = path.read_text()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert [certificate.covers_name(path, name) for name in (*names, "127.0.0.1", "localhost")] == [
        True, True, True, False,
    ]  # fmt: skip
    assert not certificate.ensure(names, tmp_path / "tls")
    assert path.read_text() == first
    names.append("localhost")
    assert certificate.ensure(names, tmp_path / "tls")
    assert path.read_text() != first
    assert certificate.covers_name(path, "localhost")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_one_of_the_operators_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir()
    monkeypatch.setattr(certificate, "OUR_SUBJECT", "somebody else")
    certificate.self_sign(["other.example.org"], tmp_path / "theirs")
    monkeypatch.undo()
    certificate.install(tmp_path, tmp_path / "theirs/certificate.pem", tmp_path / "theirs/key.pem")
    assert not certificate.ensure(["mlflow.example.org"], tmp_path / "tls")
    assert (tmp_path / "tls/certificate.pem").read_text() == (tmp_path / "theirs/certificate.pem").read_text()
