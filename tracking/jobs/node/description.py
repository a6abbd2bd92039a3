"""What is written of a run once it has ended, for others to read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def describe(folder: Path) -> None:
    """Write what others read of a run that has ended: MLPerf's log, and the chart of its roofline."""
    from tracking.analysis import mlperf, report  # Here: no worker's start is to wait for them.

    with suppress(OSError):  # a full disk: the run has its result
        mlperf.write(folder)
    with suppress(OSError, ValueError):  # likewise
        report.roofline_chart.write_of_run(folder)
