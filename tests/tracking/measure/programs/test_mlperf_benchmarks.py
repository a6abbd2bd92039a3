"""The table of MLPerf's benchmarks: it has those of every round, and asks for as many runs as MLPerf's own programs."""

from __future__ import annotations

import pytest

from conf.target import limit
from tracking.measure.programs.mlperf_benchmarks import benchmark, table

ROUNDS = ("0.7", "1.0", "1.1", "2.0", "2.1", "3.0", "3.1", "4.0", "4.1", "5.0", "5.1", "6.0", "6.1")


@pytest.mark.parametrize("usage", ["training", "hpc"])
def test_each_benchmark_asks_for_as_many_runs_as_mlperfs_own_program(usage: str) -> None:
    from mlperf_logging.benchmark_meta import get_result_file_counts

    counts = get_result_file_counts(usage)
    counts.pop("ncf", None)  # MLPerf's has 10, and the rules of v0.5 and v0.6, the only ones that have it, 100
    assert {name: benchmark(name).runs for name in counts} == counts


@pytest.mark.parametrize("round_", ROUNDS)
def test_the_table_has_the_benchmarks_of_every_round(round_: str) -> None:
    from mlperf_logging.benchmark_meta import get_allowed_benchmarks

    for name in get_allowed_benchmarks("training", round_):
        spans = [row.rounds.removeprefix("hpc ").split("-") for row in table() if row.name == name]
        numbers = [(float(span[0][1:]), float(span[-1][1:])) for span in spans]
        assert any(first <= float(round_) <= last for first, last in numbers), f"{name} of {round_}"


def test_counts_that_differ_by_round_are_those_of_the_logs_round() -> None:
    assert (benchmark("minigo", "v0.5").runs, benchmark("minigo", "v0.6").runs, benchmark("minigo").runs) == (
        20,
        10,
        10,
    )
    assert (benchmark("unet3d").runs, benchmark("unet3d").dropped) == (40, 4)
    assert (benchmark("ncf", "v0.5").runs, benchmark("ncf", "v0.5").converged) == (100, 50)


def test_every_row_says_where_it_comes_from() -> None:
    from tracking.measure.programs.mlperf_benchmarks import TABLE_CSV

    rows = TABLE_CSV.read_text().splitlines()[1:]
    assert len(rows) == len(table())
    assert all(any(word in row.rpartition(",")[2] for word in ("rules", "result_summarizer")) for row in rows)
    assert all(limit(target) > 0 for row in table() for target in row.targets.values())


def test_a_name_that_is_in_no_row_is_known_by_itself_alone() -> None:
    made = benchmark("Somebodys_Own", batch=3)
    assert (made.name, made.runs, made.targets, made.has_epochs) == ("somebodys_own", 0, {}, True)
