"""The events of a launch: whole lines of JSON, without secrets, to a reader that may go away."""

from __future__ import annotations

import json
import os

import pytest

from tracking.base.event_stream import EventStream


def test_an_event_is_a_line_of_json_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter22hunter22")
    reading, writing = os.pipe()
    EventStream(writing).tell("failed", because="no hunter22hunter22\nhere", named=None)
    os.close(writing)
    with os.fdopen(reading) as file:
        [line] = file.read().splitlines()
    event = json.loads(line)
    assert (event["event"], event["version"], event["named"]) == ("failed", 1, None)
    assert "hunter22" not in line


def test_a_reader_that_has_gone_ends_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    events = EventStream(writing)
    events.tell("started", run="a")
    events.tell("ended", code=0)
    os.close(writing)


def test_without_the_option_nothing_is_told() -> None:
    argv = ["launch.py", "seed=1"]
    EventStream.from_command_line(argv).tell("ended", code=0)
    assert argv == ["launch.py", "seed=1"]


def test_the_option_may_be_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "dup", lambda descriptor: descriptor)
    monkeypatch.setattr(os, "dup2", lambda *descriptors: None)
    argv = ["launch.py", "--json", "seed=1", "--json"]
    EventStream.from_command_line(argv)
    assert argv == ["launch.py", "seed=1"]
