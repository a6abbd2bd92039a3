"""What the tests of several files here start from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tracking import mirror


@pytest.fixture
def mlflow_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The mirror's settings for MLflow, and nothing of the user's."""
    for name in [name for name in os.environ if name.startswith("MLFLOW_TRACKING")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))  # no ~/.mlflow/credentials
    for name, value in mirror.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file mlflow.db with MLflow's tables, which take ten seconds to make, for tests to copy."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path
