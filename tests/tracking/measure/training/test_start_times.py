"""A start by its parts, from events and from what PyTorch's compiler says."""

from __future__ import annotations

from typing import Any

import pytest

from tracking.base import quantities
from tracking.base.time_parts import COMPILE_PARTS, INIT_PARTS
from tracking.measure.training import clock
from tracking.record.journal import Record


def event(key: str, at: float, **values: Any) -> Record:
    return Record("event", int(at * 1000), at, key, values=values)


def interval(name: str, begin: float, end: float) -> list[Record]:
    return [event(f"{name}_start", begin), event(f"{name}_stop", end)]


def start(**compiled: float) -> list[Record]:
    """A start that takes 100 s: the command begins at 0."""
    return [
        event("init_start", 3.0, since_command_sec=3.0),
        *interval("import", 4.0, 14.0),
        *interval("process_group", 15.0, 16.0),
        *interval("import", 16.0, 18.0),
        *interval("index", 18.0, 25.0),
        *interval("model", 25.0, 26.0),
        *interval("loaders", 26.0, 28.0),
        *interval("trainer", 28.0, 31.0),
        event("warmup_start", 31.0),
        *([event("compiled", 90.0, **compiled)] if compiled else []),
        event("warmup_stop", 91.0),
        event("run_start", 100.0),
    ]


def test_a_wait_for_nccl_within_the_warm_up_is_part_of_the_process_group_alone() -> None:
    events = start(backend_sec=20.0)
    events[-3:-3] = interval("process_group", 40.0, 42.0)
    summary = clock.summarize(events, {})
    assert summary[quantities.init_part("process_group")] == 3.0
    assert summary["time/compile_sec"] == 58.0
    assert summary[quantities.compile_part("warmup")] == 38.0
    parts = sum(summary[quantities.init_part(name)] for name in INIT_PARTS)
    assert parts + summary["time/compile_sec"] == summary["time/init_sec"] == 100.0


def test_the_parts_of_a_start_add_up_to_it_with_a_rest_that_is_named() -> None:
    summary = clock.summarize(start(), {})
    parts = {name: summary[quantities.init_part(name)] for name in INIT_PARTS}
    assert parts == {
        "launch": 3.0, "import": 12.0, "process_group": 1.0, "data": 9.0, "model": 1.0, "trainer": 3.0, "rest": 11.0,
    }  # fmt: skip
    assert summary["time/index_sec"] == 7.0
    assert sum(parts.values()) + summary["time/compile_sec"] == summary["time/init_sec"] == 100.0
    assert not [key for key in summary if key.startswith("time/compile_") and key != "time/compile_sec"]


def test_the_parts_of_compiling_add_up_and_one_that_was_not_measured_is_absent() -> None:
    summary = clock.summarize(start(trace_sec=20.0, backend_sec=25.0, num_cached=0, num_compiled=3), {})
    parts = {key: sec for key, sec in summary.items() if key.startswith("time/compile_") and key != "time/compile_sec"}
    names = ("trace", "backend", "warmup")
    assert parts == dict(zip(map(quantities.compile_part, names), (20.0, 25.0, 15.0), strict=True))
    assert sum(parts.values()) == summary["time/compile_sec"] == 60.0
    assert set(names) < COMPILE_PARTS.keys()


def test_a_run_that_does_not_tell_its_parts_has_the_sums_alone() -> None:
    """One of an earlier version, and a script's."""
    events = [record for record in start() if not record.key.startswith(("import", "process", "model", "loaders"))]
    summary = clock.summarize(events, {})
    assert summary == {"time/init_sec": 100.0, "time/index_sec": 7.0, "time/compile_sec": 60.0}


def test_parts_that_are_more_than_the_whole_are_not_reported() -> None:
    summary = clock.summarize(start(trace_sec=40.0, backend_sec=40.0), {})
    assert summary["time/compile_sec"] == 60.0
    assert quantities.compile_part("trace") not in summary


@pytest.mark.parametrize("name", [*INIT_PARTS, *COMPILE_PARTS])
def test_every_part_has_words(name: str) -> None:
    assert (INIT_PARTS | COMPILE_PARTS)[name].isprintable()


@pytest.mark.parametrize(("own_server", "before_sec"), [(True, 10.0), (False, 12.0)])
def test_a_forked_run_imports_as_long_as_it_waits_for_its_server(own_server: bool, before_sec: float) -> None:
    events = start()
    first = [*interval("import", 4.0, 14.0)] if own_server else []
    forked = [events[0], *first, event("forked", 15.0), *events[3:]]
    summary = clock.summarize(forked, {})
    assert summary[quantities.init_part("import")] == before_sec + 2.0
    assert sum(summary[quantities.init_part(name)] for name in INIT_PARTS) + 60.0 == summary["time/init_sec"] == 100.0
