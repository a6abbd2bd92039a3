"""Much at once: a sweep of a hundred jobs, and writers, mirrors and a server that all fail beside each other."""

from __future__ import annotations

import time

from tests.chaos import count
from tests.chaos.case import LIMIT_SEC, Case, Kind
from tests.chaos.writers import Chaos
from tests.support.faulty_proxy import FAULTS

WRITERS_SEC = 10.0


def play_sweep(case: Case) -> None:
    """All jobs of a sweep are there, whatever the server did meanwhile."""
    number = int(case.variant.split(" ")[0])
    jobs: list[dict[str, object]] = [{"then": "finish", "rows": case.rng.randint(0, 40)} for _ in range(number)]
    launcher = case.quick(*jobs, WAIT_SEC="20")
    began = time.monotonic()
    while launcher.alive and time.monotonic() < began + number * LIMIT_SEC / 100:
        time.sleep(case.rng.uniform(0.5, 8))
        with case.proxy.failing(case.rng.choice(FAULTS)):
            time.sleep(case.rng.uniform(0.1, 2))
    code = launcher.end(4 * LIMIT_SEC)
    case.tell(f"{number} jobs in {time.monotonic() - began:.0f} s, {len(case.proxy.times)} requests, exit code {code}")
    case.wait_until_gone()
    case.sync()
    case.compare()
    num_folders = len(count.folders(case.cwd)) - 1
    case.require(num_folders == number, f"{num_folders} of {number} jobs have a folder")
    wanted = sum(int(str(job["rows"])) for job in jobs)
    case.require(wanted == (there := num_rows(case)), f"the workers have written {there} rows of {wanted}")


def num_rows(case: Case) -> int:
    """The rows that the workers themselves have written."""
    return sum(key == "train/loss" for folder in count.folders(case.cwd) for key, *_ in count.journal_of(folder))


def play_writers(case: Case) -> None:
    report = Chaos(case.cwd, case.server, case.proxy, case.seed).run(WRITERS_SEC)
    case.rows += report.rows_written
    case.tell(str(report).replace("\n", " "))
    wrong = report.rows_lost or report.rows_altered or report.duplicates
    case.require(not wrong, str(report))


SWEEP = Kind("sweep", ["8 jobs"], play_sweep, once="100 jobs")
WRITERS = Kind("writers and mirrors", [f"{WRITERS_SEC:.0f} s"], play_writers)
