from __future__ import annotations

import math
import multiprocessing
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracking.record.journal import Journal, Record, read

KEYS = st.text(min_size=1, max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
STEPS = st.integers(min_value=0, max_value=2**62)
ENTRIES = st.lists(
    st.one_of(
        st.tuples(st.just("metrics"), st.dictionaries(KEYS, st.floats()), STEPS),
        st.tuples(st.just("params"), st.dictionaries(KEYS, SCALARS)),
        st.tuples(st.just("tags"), st.dictionaries(KEYS, SCALARS)),
        st.tuples(st.just("event"), KEYS, SCALARS),
    ),
    max_size=8,
)


def write(path: Path, entries: list[tuple]) -> list[Record]:
    journal = Journal(path)
    written = [getattr(journal, kind)(*arguments) for kind, *arguments in entries]
    journal.close()
    return written


def same(left: Record, right: Record) -> bool:
    """Equality in which NaN equals itself: the text of two floats is equal exactly where they are."""
    return repr(left) == repr(right)


@given(ENTRIES)
def test_records_come_back_as_they_were_written(entries: list[tuple]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        written = write(path, entries)
        records = list(read(path))
        assert len(records) == len(written)
        assert all(same(*pair) for pair in zip([record for record, _ in records], written, strict=True))
        for index, (_, offset) in enumerate(records):  # reading goes on behind any record
            assert [end for _, end in read(path, offset)] == [end for _, end in records[index + 1 :]]
        assert not records or records[-1][1] == path.stat().st_size


@given(ENTRIES, ENTRIES, st.integers(min_value=1, max_value=200))
def test_a_torn_last_line_costs_that_line_alone(before: list[tuple], after: list[tuple], num_lost_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        written = write(path, before)
        start = path.stat().st_size
        write(path, [("event", "torn", "x" * 200)])
        content = path.read_bytes()
        path.write_bytes(content[: max(start + 1, len(content) - num_lost_bytes)])
        assert [offset for _, offset in read(path)][-1:] == ([start] if before else [])  # waits for the rest
        written += write(path, after)
        records = [record for record, _ in read(path)]
        # Where only the newline was lost, the next writer's newline completes the record.
        records = [record for record in records if record.key != "torn"]
        assert len(records) == len(written)
        assert all(same(*pair) for pair in zip(records, written, strict=True))


def append(path: Path, process: int, num_records: int) -> None:
    journal = Journal(path)
    for step in range(num_records):
        journal.metrics({f"process {process}": math.nan, "padding" * 20: 1.0}, step)


@pytest.mark.slow
def test_two_processes_append_without_tearing_each_others_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=append, args=(path, process, 2000)) for process in range(2)]
    for process in processes:
        process.start()
    offset, records = 0, []
    while any(process.is_alive() for process in processes) or not records or next(read(path, offset), None):
        for record, end in read(path, offset):  # read while they write
            records.append(record)
            offset = end
    for process in processes:
        process.join()
        assert process.exitcode == 0
    for number in range(2):
        steps = [record.step for record in records if f"process {number}" in record.values]
        assert steps == list(range(2000))
    assert len(records) == 4000


def test_a_missing_journal_is_empty_and_a_foreign_line_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert list(read(path)) == []
    path.write_text('[1]\n{"kind": "unknown field", "x": 1}\nnull\n"text"\n')
    [written] = write(path, [("params", {"seed": 1})])
    assert [record for record, _ in read(path)] == [written]


@pytest.mark.parametrize("closed", [True, False], ids=["a new writer", "one that was there before"])
def test_a_record_torn_at_any_byte_costs_no_other(tmp_path: Path, closed: bool) -> None:
    path = tmp_path / "journal.jsonl"
    before = Journal(path)
    [torn] = write(tmp_path / "other", [("tags", {"kind": '{"kind": "tags"}', "é": math.nan})])
    line = (tmp_path / "other").read_bytes()
    for num_bytes in range(len(line) + 1):
        path.write_bytes(b"")
        first = before.event("first")
        with path.open("ab") as file:
            file.write(line[:num_bytes])
        last = (Journal(path) if closed else before).event("last", text='{"kind": "event"}')
        whole = [torn] if num_bytes >= len(line) - 1 else []  # it may lack its newline alone
        records = list(read(path))
        assert len(records) == 2 + len(whole), num_bytes
        assert all(same(*pair) for pair in zip((record for record, _ in records), (first, *whole, last), strict=True))
        for index, (_, offset) in enumerate(records):
            assert [end for _, end in read(path, offset)] == [end for _, end in records[index + 1 :]]


def test_what_a_file_system_left_of_a_power_cut_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    [first] = write(path, [("params", {"seed": 1})])
    with path.open("ab") as file:
        file.write(bytes(1000))  # a size that was written, and blocks that were not
    [last] = write(path, [("params", {"seed": 2})])
    assert [record for record, _ in read(path)] == [first, last]
