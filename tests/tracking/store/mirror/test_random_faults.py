"""Random faults against a real server: every row of every journal is there, once, as it was written.

TIMETRIAL_FAULT_SECONDS is for how long faults are injected (default 5), TIMETRIAL_FAULT_SEED what they follow from.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.chaos.writers import Chaos
from tests.support.faulty_proxy import FaultyProxy
from tests.support.mlflow_server import MlflowServer

pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.mark.exhaustive
def test_no_row_is_lost_altered_or_there_twice(
    server: MlflowServer, proxy: FaultyProxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("TIMETRIAL_FAULT_SEED", time.time_ns() % 10**6))
    report = Chaos(tmp_path, server, proxy, seed).run(float(os.environ.get("TIMETRIAL_FAULT_SECONDS", "5")))
    with capsys.disabled():
        print(f"\n{report}")
    assert (report.rows_lost, report.rows_altered, report.duplicates) == (0, 0, 0)
    assert report.rows_written > 1000
    assert report.faults.total() > 10
