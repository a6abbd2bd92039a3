"""What the worker's agent writes when one of its processes fails."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous import RendezvousParameters, dynamic_rendezvous, registry

from tracking.record import Failure, Result, run_folder
from trainers.loop.worker import agent


def test_what_a_training_has_finished_stays_finished(tmp_path: Path) -> None:
    """As where it is killed while it saves its model."""
    run_folder.write_result(tmp_path, Result("finished", metrics={"time/to_accuracy_sec": 1.0}))
    assert agent.fail(tmp_path, Failure("signal:9", "killed")) == 1
    result = run_folder.read_result(tmp_path)
    assert result is not None
    assert (result.status, result.metrics) == ("finished", {"time/to_accuracy_sec": 1.0})
    (tmp_path / run_folder.RESULT).unlink()
    agent.fail(tmp_path, Failure("signal:9", "killed"))
    result = run_folder.read_result(tmp_path)
    assert result is not None
    assert result.status == "killed"


def test_torchruns_rendezvous_names_its_events_without_looking_for_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []

    def record(**event: Any) -> None:
        names.append(event["name"])

    def look() -> None:
        raise AssertionError("inspect.stack looks for the sources of all modules")

    monkeypatch.setattr(dynamic_rendezvous, "get_method_name", dynamic_rendezvous.get_method_name)  # to be restored
    monkeypatch.setattr(dynamic_rendezvous, "construct_and_record_rdzv_event", record)
    monkeypatch.setattr(inspect, "stack", look)
    agent.name_methods_quickly()
    asked = RendezvousParameters("c10d", "localhost:0", "a run", min_nodes=1, max_nodes=1)
    handler = registry.get_rendezvous_handler(asked)
    assert handler.next_rendezvous().world_size == 1
    assert handler.shutdown()
    assert "DynamicRendezvousHandler.next_rendezvous" in names
