"""Arbitrary JSON in place of every part of a foreign record: what does not fit is named, and the rest gives figures."""

from __future__ import annotations

import copy
import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracking.measure.programs import (
    DeclaredPatterns,
    SkippedLines,
    TrainingEvents,
    WallClock,
    checked_values,
    parse_entry,
    parse_record,
    program_tags,
)
from tracking.measure.training import clock, throughput
from tracking.record import Record, journal

BEGAN = (1_000_000, 100.0)
TARGETS = {"accuracy": 0.7}
EXTREMES = st.sampled_from([10**400, -(10**400), 1e18, -5, 0, 0.5, math.nan, math.inf, 2**63, 2**53])
NUMBERS = EXTREMES | st.integers() | st.floats()
VALUES = st.recursive(
    EXTREMES | NUMBERS | st.none() | st.booleans() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
STRANGE = (
    st.sampled_from(["target_reached", "time/to_accuracy_sec", "a b?", "", "x" * 300, "\ud800", "\x1b"])
    | EXTREMES
    | VALUES
)
# Valid lines. The test replaces one value of a line, or none.
JOURNAL = [
    {"kind": "event", "key": "run_start", "clock_sec": 100.5},
    {"kind": "event", "key": "epoch_start", "time_ms": 1_000_600, "values": {"epoch_num": 1, "step": 0}},
    {"kind": "event", "key": "epoch_stop", "values": {"epoch_num": 1}},
    {"kind": "event", "key": "throughput_window", "values": {"samples": 8, "rank_ms": [5, 6], "epoch_num": 1}},
    {"kind": "event", "key": "eval_accuracy", "values": {"metrics": {"accuracy": 0.8}, "epoch_num": 1, "step": 3}},
    {"kind": "metrics", "step": 3, "values": {"train/loss": 0.5}},
    {"kind": "event", "key": "run_stop"},
]  # fmt: skip
MLLOG = [
    {"key": "train_samples", "value": 100, "time_ms": 1_000_000},
    {"key": "number_of_ranks", "value": 2, "time_ms": 1_000_000},
    {"key": "submission_org", "value": "x", "time_ms": 1_000_000},
    {"key": "run_start", "value": None, "time_ms": 1_000_000, "metadata": {}},
    {"key": "epoch_start", "time_ms": 1_000_000, "metadata": {"epoch_num": 1}},
    {"key": "epoch_stop", "time_ms": 1_000_900, "metadata": {"epoch_num": 1}},
    {"key": "block_start", "time_ms": 1_000_000, "metadata": {"first_epoch_num": 2, "epoch_count": 3}},
    {"key": "block_stop", "time_ms": 1_000_900, "metadata": {"first_epoch_num": 2, "epoch_count": 3}},
    {"key": "eval_accuracy", "value": 0.8, "time_ms": 1_000_950, "metadata": {"epoch_num": 1, "metric": "accuracy"}},
    {"key": "eval_accuracy", "value": {"accuracy": 0.8}, "time_ms": 1_000_950, "metadata": {"epoch_num": 1}},
    {"key": "run_stop", "time_ms": 1_001_000, "metadata": {"status": "success"}},
]  # fmt: skip


@st.composite
def replaced(draw: st.DrawFn, lines: list[dict[str, Any]]) -> dict[str, Any]:
    line: Any = copy.deepcopy(draw(st.sampled_from(lines)))
    part: Any = line
    if draw(st.integers(0, 2)) == 0:
        return dict(line)
    while True:
        place = draw(st.sampled_from(sorted(part) if isinstance(part, dict) else range(len(part))))
        if not (isinstance(part[place], dict | list) and part[place] and draw(st.booleans())):
            break
        part = part[place]
    if isinstance(part, dict) and draw(st.booleans()):
        part[draw(STRANGE.filter(lambda key: isinstance(key, str)))] = part.pop(place)
    else:
        part[place] = draw(STRANGE)
    return dict(line)


def check(account: TrainingEvents, records: list[Record]) -> None:
    """The records can be journaled and read again, and their figures are numbers or a clock that went back."""
    for record in records:
        again = journal._record(json.loads(json.dumps(vars(record))))
        assert -(2**63) <= again.step < 2**63
        assert all(isinstance(value, float) for value in again.values.values()) or record.kind != "metrics"
        keys = (
            record.values if record.kind == "metrics" else {f"eval/{key}" for key in record.values.get("metrics", ())}
        )
        assert all(journal.is_key(key) for key in keys)
    events = [record for record in records if record.kind == "event"]
    rates = throughput.summarize(throughput.program_windows(events), account.world_size)
    figures: dict[str, float] = {}
    with suppress(ValueError):  # The clock went back.
        figures = clock.summarize(events, TARGETS)
    assert all(math.isfinite(value) for value in (rates | figures).values())
    assert all(len(value) <= 400 for value in program_tags(account, SkippedLines()).values())


@settings(deadline=None, max_examples=150)
@given(st.lists(replaced(JOURNAL), max_size=20))
def test_any_json_in_a_programs_journal_is_a_record_or_is_refused(lines: list[dict[str, Any]]) -> None:
    account, records = TrainingEvents(WallClock(*BEGAN), TARGETS, BEGAN), []
    for content in lines:
        with suppress(ValueError):  # It says what does not fit.
            records += account.read_record(parse_record(json.dumps(content), 1_001_000, 101.0))
    check(account, [*records, *account.end(1_002_000, 102.0)])


@settings(deadline=None, max_examples=150)
@given(st.lists(replaced(MLLOG), max_size=20))
def test_any_json_in_a_line_of_mlperfs_log_is_an_entry_or_is_torn(lines: list[dict[str, Any]]) -> None:
    account, records = TrainingEvents(WallClock(*BEGAN), TARGETS, BEGAN), []
    for content in lines:
        entry = parse_entry(f":::MLLOG {json.dumps(content)}")
        records += [] if entry is None else account.read_entry(entry)
    check(account, [*records, *account.end(1_002_000, 102.0)])


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(["acc", "loss", "seen", "epoch", "step"]), NUMBERS | st.text(max_size=8))))
def test_any_number_in_declared_words_is_a_record_or_nothing(said: list[tuple[str, Any]]) -> None:
    words = DeclaredPatterns({"eval/accuracy": r"acc (.+)", "train/loss": r"loss (.+)"}, r"seen (.+)", r"epoch (.+)",
                          r"step (.+)")  # fmt: skip
    account, records = TrainingEvents(WallClock(*BEGAN), TARGETS, BEGAN), []
    for place, (word, value) in enumerate(said):
        text = str(float(value)) if isinstance(value, int) and abs(value) < 1e300 else str(value)[:4000]
        records += account.read_matches(words.matches(f"{word} {text}"), 1_001_000 + place, 101.0 + place)
    check(account, [*records, *account.end(2_002_000, 1102.0)])


def test_integers_beyond_63_bits_are_floats_and_infinite_beyond_those() -> None:
    assert checked_values.parse_json(f"[{2**63 - 1}, {2**63}, -{'9' * 401}]") == [2**63 - 1, float(2**63), -math.inf]
    assert isinstance(checked_values.parse_json(str(2**63)), float)


def test_windows_of_another_number_of_ranks_are_refused() -> None:
    account = TrainingEvents(WallClock(*BEGAN), TARGETS, BEGAN)
    line = '{{"kind": "event", "key": "throughput_window", "values": {{"samples": 8, "rank_ms": {}}}}}'
    assert account.read_record(parse_record(line.format([1, 1]), *BEGAN))
    with pytest.raises(ValueError, match="has 1 ranks, but 2 before"):
        account.read_record(parse_record(line.format([1]), *BEGAN))


def test_a_program_that_says_ever_new_names_does_not_fill_the_journal_and_its_target_is_kept() -> None:
    account = TrainingEvents(WallClock(*BEGAN), TARGETS, BEGAN)
    line = '{{"kind": "metrics", "values": {{"loss_{}": 1}}}}'
    lines = [parse_record(line.format(place), *BEGAN) for place in range(3_000)]
    records = [record for parsed in lines for record in account.read_record(parsed)]
    assert len(records) == 1_001  # with run_start
    assert account.num_skipped == 2_000
    reached = '{"kind": "event", "key": "eval_accuracy", "values": {"metrics": {"accuracy": 0.9}}}'
    assert [record.key for record in account.read_record(parse_record(reached, *BEGAN))] == ["eval_accuracy", ""]


def test_a_wall_clock_that_is_set_is_followed_and_told() -> None:
    account = TrainingEvents(WallClock(*BEGAN), TARGETS, BEGAN)
    account.clock.follow(1_010_050, 110.0)  # of two readings never the same moment
    assert account.clock.clock_sec(1_010_000) == pytest.approx(110.0)
    account.clock.follow(1_020_000 - 3_600_000, 120.0)
    assert account.clock.clock_sec(1_021_000 - 3_600_000) == pytest.approx(121.0)
    assert program_tags(account, SkippedLines())["program.clock_set"] == "the wall clock was set by -3600.0 s meanwhile"
