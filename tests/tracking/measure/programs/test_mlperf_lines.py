"""MLPerf's log in its three formats, whole and torn. The lines were written here, in the documented formats."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracking.measure.programs import Entry, LineSplitter, is_torn, parse_entry
from tracking.measure.programs import line_splitter as line_module


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        (
            ':::MLLOG {"namespace": "", "time_ms": 1592512000123, "event_type": "INTERVAL_START", "key": "run_start",'
            ' "value": null, "metadata": {"file": "train.py", "lineno": 7}}',
            Entry("run_start", None, {"file": "train.py", "lineno": 7}, 1592512000123.0),
        ),
        (
            '3: :::MLLOG {"time_ms": 5.5, "key": "eval_accuracy", "value": {"A": 0.3}, "metadata": {"epoch_num": 4}} x',
            Entry("eval_accuracy", {"A": 0.3}, {"epoch_num": 4}, 5.5),
        ),
        (
            ':::MLL 1558639250.061 run_stop: {"value": null, "metadata": {"status": "aborted"}}',
            Entry("run_stop", None, {"status": "aborted"}, 1558639250061.0),
        ),
        (
            ':::MLPv0.5.0 ssd 1541710501.5 (train.py:12) eval_accuracy: {"epoch": 5, "value": 0.04}',
            Entry("eval_accuracy", 0.04, {"epoch_num": 5}, 1541710501500.0),
        ),
        (
            ':::MLPv0.5.0 ssd 1541710501.5 (train.py:12) run_stop: {"success": true}',
            Entry("run_stop", None, {"status": "success"}, 1541710501500.0),
        ),
        (":::MLPv0.5.0 ssd 1541710501.5 (train.py:12) run_start", Entry("run_start", None, {}, 1541710501500.0)),
        (":::MLPv0.5.0 ssd 1541710501.5 (a.py:1) eval_target: 0.2", Entry("eval_target", 0.2, {}, 1541710501500.0)),
    ],
)  # fmt: skip
def test_a_line_is_read(line: str, entry: Entry) -> None:
    assert parse_entry(line) == entry
    assert not is_torn(line)


@pytest.mark.parametrize(
    "line",
    [
        ':::MLLOG {"time_ms": 1592512000123, "key": "run_st',
        ':::MLLOG {"time_ms": 1592512000123, "event_type": ":::MLLOG {}',
        ':::MLLOG {"time_ms": 1e400, "key": "run_start"}',
        ':::MLLOG {"time_ms": 12, "key": ["run_start"]}',
        ":::MLLOG []",
        ":::MLL 15586 run_stop: {",
        ":::MLP",
    ],
)
def test_a_torn_line_is_none_and_is_known_to_be_torn(line: str) -> None:
    assert parse_entry(line) is None
    assert is_torn(line)


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    parse_entry(text)
    parse_entry(f":::MLLOG {text}")
    parse_entry(f":::MLPv0.5.0 {text}")
    assert not is_torn(text) or ":::ML" in text


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_lines_are_the_same_however_they_are_cut(chunks: list[bytes]) -> None:
    whole, cut = LineSplitter(), LineSplitter()
    text = b"".join(chunks).replace(b"\r", b".")
    expected = whole.feed(text) + whole.end()
    pieces = [text[i : i + 3] for i in range(0, len(text), 3)]
    assert [line for piece in pieces for line in cut.feed(piece)] + cut.end() == expected


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    lines = LineSplitter()
    pieces = [line for _ in range(64) for line in lines.feed(b"x" * 10_000)]
    assert sum(map(len, pieces)) + len("".join(lines.end())) == 640_000
    assert max(map(len, pieces)) == 65_536


class Counting(bytes):
    """Bytes that count how many of them are copied."""

    copied = 0

    def __getitem__(self, key: Any) -> Any:
        part = bytes.__getitem__(self, key)
        Counting.copied += len(part) if isinstance(key, slice) else 0
        return Counting(part) if isinstance(key, slice) else part


def test_a_line_without_end_is_cut_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "ENDS", SimpleNamespace(split=lambda text: [Counting(text)]))
    text = b"x" * (64 * line_module.MAX_LINE_BYTES)
    assert len(LineSplitter().feed(text)) == 64
    assert len(text) <= Counting.copied <= 3 * len(text)


def test_a_long_line_is_cut_whether_it_comes_at_once_or_in_pieces() -> None:
    text, at_once, in_pieces = b"x" * 150_000 + b"\n", LineSplitter(), LineSplitter()
    pieces = [line for at in range(0, len(text), 1000) for line in in_pieces.feed(text[at : at + 1000])]
    assert at_once.feed(text) == pieces
