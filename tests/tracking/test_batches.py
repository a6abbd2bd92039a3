"""What the mirror refuses to send; tests/tracking/test_mirror.py sends the rest to a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracking.batches import batches
from tracking.journal import Journal


@pytest.mark.parametrize("key", ["throughput(tps)", "a" * 251, "a//b", "/a", "..", "a:b", ""])
def test_a_key_that_mlflow_cannot_hold_is_named(tmp_path: Path, key: str) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.metrics({key: 1.0})
    with pytest.raises(ValueError, match="cannot take the key") as caught:
        list(batches(tmp_path / "journal.jsonl", 0))
    assert repr(key) in str(caught.value)


def test_values_that_mlflow_cannot_hold_are_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a")
    journal.metrics({"loss": "high"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="'loss' is no number: 'high'"):
        list(batches(tmp_path / "a", 0))
    journal = Journal(tmp_path / "b")
    journal.params({"seed": 1})
    journal.params({"seed": 2})
    with pytest.raises(ValueError, match="'seed' is '2' after '1'"):
        list(batches(tmp_path / "b", 0))
