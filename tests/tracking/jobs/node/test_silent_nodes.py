"""A node is gone if its file stays the same, unless this process could not read it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from tracking.jobs.node import node_files
from tracking.jobs.node.node_files import NodeState, Peer


@pytest.mark.parametrize(
    ("readings", "is_gone"),
    [
        ([0.1] * 150, True),
        ([0.1, 15.0, 0.1], False),  # this job was suspended, or the file server was silent
        ([0.1, 15.0, *[0.1] * 90], False),
        ([0.1, 15.0, *[0.1] * 110], True),
    ],
)
def test_silence_counts_while_its_file_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readings: list[float], is_gone: bool
) -> None:
    now = [100.0]
    monkeypatch.setattr(node_files, "time", SimpleNamespace(monotonic=lambda: now[0]))
    path = tmp_path / "1.json"
    path.write_text(json.dumps(asdict(NodeState("n2", "/runs", {}, beat=1))))
    peer = Peer(1, path, fresh=True)
    for pause_sec in readings:
        now[0] += pause_sec
        failure = peer.trouble()
    assert (failure is not None) == is_gone
