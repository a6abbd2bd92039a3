"""The ceiling of each limit, the reached share of it, and the time without the limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tracking.measure.bottleneck.test_run_limits import GPU, MEASURED, cache, event, sample
from tracking.jobs.follow import result_table
from tracking.measure.bottleneck import ceilings, examine, possible
from tracking.record import Record, Result, journal, run_folder

__all__ = ["cache"]  # a fixture


def run(folder: Path, *records: Record, precision: str = "bf16") -> Path:
    log = journal.Journal(folder / run_folder.JOURNAL)
    log.tags(GPU)
    log.params({"precision": precision})
    for record in records:
        log.append(record)
    log.close()
    return folder


def trained(*samples: Record) -> list[Record]:
    """A training of 10 s, with an evaluation of 2 s at its end."""
    return [event(0, "run_start"), event(0, "epoch_start"), *samples, event(8, "epoch_stop"), event(8, "eval_start"),
            event(10, "eval_stop"), event(10, "run_stop")]  # fmt: skip


def test_each_limit_says_its_ceiling_what_was_reached_and_the_time_without_it(tmp_path: Path) -> None:
    ceilings.save(MEASURED)
    busy = {"engine_activity_percentage": 100.0, "dram_bandwidth_percentage": 45.0, "tensor_activity_percentage": 27.0}
    folder = run(tmp_path, *trained(sample(0, **busy), sample(4, **busy), sample(8, **busy)))
    ceilings.copy_into(folder, GPU)
    rows = {row["cause"]: row for row in examine(folder).bottleneck["possible"]}
    # 45 % of the cycles at the 90 % of a copy are half of 8 s; 27 % at the 90 % of a product are 2.4 s.
    assert rows["dram"] == {
        "cause": "dram", "share": 0.4, "at_least_sec": 6.0, "ceiling": 3e12, "unit": "B/s", "reached": 0.5
    }  # fmt: skip
    assert rows["tensor"] | {"at_least_sec": 0} == {
        "cause": "tensor", "share": 0.24, "at_least_sec": 0, "ceiling": 7e14, "unit": "FLOP/s", "reached": 0.3
    }  # fmt: skip
    assert rows["evaluation"] == {"cause": "evaluation", "share": 0.2, "at_least_sec": 8.0}
    assert list(rows) == ["dram", "tensor", "evaluation"]


def test_without_ceilings_there_is_the_time_alone(tmp_path: Path) -> None:
    busy = {"engine_activity_percentage": 100.0, "dram_bandwidth_percentage": 45.0}
    (row, _) = examine(run(tmp_path, *trained(sample(0, **busy), sample(4, **busy), sample(8, **busy)))).bottleneck[
        "possible"
    ]
    assert set(row) == {"cause", "share", "at_least_sec"}


@pytest.mark.parametrize(
    ("shares", "means", "words"),
    [
        (
            {"processor": 0.89, "evaluation": 0.08, "unknown": 0.03},
            {"run_cpu_percentage": 97.0},
            "would take at least 0.609 s instead of 5.54 s; the run reached 97 % of the cores",
        ),
        ({"data": 0.74, "unknown": 0.26}, {}, "would take at least 1.44 s instead of 5.54 s"),
    ],
)
def test_the_table_of_a_run_says_what_it_would_take_without_its_limit(
    shares: dict[str, float], means: dict[str, float], words: str
) -> None:
    rows = possible.rows(shares, 5.54, means, None, "fp32", {})
    why = {"cause": next(iter(shares)), "words": "", "possible": rows, "total_sec": 5.54}
    assert ("limit lifted", words) in result_table.run_rows(Result("finished", bottleneck=why))
    shared = Result("finished", bottleneck=why | {"shared_cores": True})
    assert "limit lifted" not in dict(result_table.run_rows(shared)), "the bound is of a shared machine"
    older = {"cause": "data", "words": ""}
    assert "limit lifted" not in dict(result_table.run_rows(Result("finished", bottleneck=older)))


def test_the_links_are_held_against_the_copy_between_the_slowest_pair() -> None:
    figures = {"ceilings/slowest_pair_megabytes_per_sec": 40_000.0}
    means = {"gpu_nvlink_transmit_megabytes_per_sec": 10_000.0}
    (row,) = possible.rows({"exchange": 0.3, "unknown": 0.7}, 10.0, means, None, "bf16", figures)
    assert (row["ceiling"], row["unit"], row["reached"]) == (4e10, "B/s", 0.25)
    assert possible.words(row, 10.0).endswith("; the run reached 25 % of 40 GB/s")
