"""What the mirror refuses to send; tests/tracking/store/mirror/test_mirror.py sends the rest to a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracking.record.journal import Journal
from tracking.store.mirror.log_batches import log_batches


@pytest.mark.parametrize("key", ["throughput(tps)", "a" * 251, "a//b", "/a", "..", "a:b", ""])
def test_a_key_that_mlflow_cannot_hold_is_named_and_costs_that_value_alone(tmp_path: Path, key: str) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.metrics({"before": 1.0, key: 1.0, "after": 1.0})
    [batch] = log_batches(tmp_path / "journal.jsonl", 0)
    [words] = batch.refused
    assert "does not accept the key" in words
    assert repr(key) in words
    assert [metric[0] for metric in batch.metrics] == ["before", "after"]


def test_values_that_mlflow_cannot_hold_are_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a")
    journal.metrics({"loss": "high"})  # type: ignore[dict-item]
    journal.metrics({"loss": 1.0}, 2**63)
    journal.params({"seed": 1})
    journal.params({"seed": 2})
    [batch] = log_batches(tmp_path / "a", 0)
    high, step, seed = batch.refused
    assert "'loss' is not a number: 'high'" in high
    assert f"'loss' has step {2**63}" in step
    assert "'seed' is '2' after '1'" in seed
    assert (batch.metrics, batch.params) == ([], {"seed": "1"})
