"""python -m tracking watch after a resume: the time left, and the machines of the present attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import studied
from tracking.__main__ import main
from tracking.record import attempts, node_records, run_folder

HOUR_SEC = 3600.0
RESUMED_SEC = 2 * HOUR_SEC  # on the clock of both attempts
WITHIN_EPOCH_1 = {"epoch_num": 0, "step": 900, "from_step": 900}
AFTER_EPOCH_1 = {"epoch_num": 1, "from_step": 1000}
THROTTLED = "gpu_0_thermal_throttled_percentage"


def interrupted(runs: Path) -> studied.Writer:
    """The journal of a run of 10 epochs of 1000 steps, a step a second, that was resumed a minute ago."""
    folder = studied.make_run(runs, studied.config(), "sqlite:///none.db")
    (folder / run_folder.RESULT).unlink()
    (folder / run_folder.JOURNAL).unlink()
    log = studied.Writer(folder / run_folder.JOURNAL, run_folder.now_ms() - round(1e3 * (RESUMED_SEC + 60)))
    log.event("run_start", 0, max_epochs=10, num_batches=1000)
    log.event("epoch_start", 0, epoch_num=1)
    log.event("throughput_window", 900, step=900)
    log.event("epoch_start", 1000, epoch_num=2)
    log.event("throughput_window", 1900, step=1900)
    return log


def go_on(log: studied.Writer, place: dict[str, int]) -> None:
    """The resume, and the start of its first epoch."""
    log.event(attempts.RESUME, RESUMED_SEC, **place, checkpoint="", after="signal:9")
    log.event("run_start", RESUMED_SEC + 9, max_epochs=10, num_batches=1000)
    log.event("epoch_start", RESUMED_SEC + 10, epoch_num=place["epoch_num"] + 1)


def watched(runs: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["watch", "--once", "--runs-dir", str(runs)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("place", "left"), [(WITHIN_EPOCH_1, "2:31:30"), (AFTER_EPOCH_1, "2:29:50")])
def test_the_time_left_is_that_of_the_steps_after_the_resume(
    runs: Path, capsys: pytest.CaptureFixture[str], place: dict[str, int], left: str
) -> None:
    log = interrupted(runs)
    go_on(log, place)
    assert "left at most" not in watched(runs, capsys)  # The earlier attempt's steps give no pace.
    log.event("throughput_window", RESUMED_SEC + 20, step=place["from_step"] + 10)
    assert f"{left} left at most" in watched(runs, capsys)


def of_node(log: studied.Writer, runs: Path, node: str, sec: float, throttled: float) -> None:
    (folder,) = runs.iterdir()
    start_ms = log.records[0].time_ms
    own = studied.Writer(folder / node_records.file_of(run_folder.JOURNAL, node), start_ms)
    values = {f"system/{node}/{THROTTLED}": throttled, f"system/{node}/cpu_utilization_percentage": 50.0}
    own.add("metrics", sec, values=values)


def test_machines_of_the_earlier_attempt_alone_are_not_shown_and_give_no_warning(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = interrupted(runs)
    log.add("metrics", 1900, values={f"system/{THROTTLED}": 100.0})  # of the head node, on other hardware
    of_node(log, runs, "n1", 1900, 100.0)
    of_node(log, runs, "n2", 1900, 0.0)
    assert "node n1: a GPU's clock is kept down" in watched(runs, capsys)
    go_on(log, AFTER_EPOCH_1)
    of_node(log, runs, "n2", RESUMED_SEC + 30, 0.0)
    of_node(log, runs, "n3", RESUMED_SEC + 30, 0.0)
    printed = watched(runs, capsys)
    assert "node n2 CPU 50 %, node n3 CPU 50 %" in printed
    assert "n1" not in printed
    assert "silent" not in printed
    assert "clock is kept down" not in printed
