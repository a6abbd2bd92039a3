"""An alert is sent once, whichever launchers and followers see what it is about."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from conf.launch_options import AlertConfig
from tests.support import studied
from tracking.base.console import make_console
from tracking.jobs.plan import Job
from tracking.jobs.watch import Alerts
from tracking.record import Failure, Result, attempts, journal, run_folder

pytestmark = pytest.mark.slow


def alerting_job(tmp_path: Path) -> Job:
    """A job whose alerts append their names to the file `told`. Its journal has a loss that is not a number."""
    tells = tmp_path / "tells.sh"
    tells.write_text(f'echo "$TIMETRIAL_ALERT" >> {tmp_path}/told')
    config = studied.config(runs_dir=str(tmp_path / "runs"))
    (tmp_path / "runs").mkdir()
    folder = studied.make_run(tmp_path / "runs", config, "sqlite:///none.db")
    config.alert = AlertConfig(f"sh {tells}")
    journal_of(folder, 20_000).add("metrics", 0, values={"train/loss": float("nan")})
    return Job(config, [], folder, failed_at(21_000))


def journal_of(folder: Path, since_ms: int) -> studied.Writer:
    return studied.Writer(folder / run_folder.JOURNAL, studied.START_MS + since_ms)


def failed_at(since_ms: int) -> Result:
    return Result("failed", failure=Failure("nan", "loss is nan", time_ms=studied.START_MS + since_ms))


def follow(job: Job) -> None:
    """Read all of a run, as each follower does that is started."""
    alerts = Alerts(make_console())
    assert job.folder is not None
    for record, _ in journal.read(job.folder / run_folder.JOURNAL):
        alerts.see(job, record)
    alerts.ended(job)
    alerts.close()


def told(tmp_path: Path) -> list[str]:
    path = tmp_path / "told"
    return sorted(path.read_text().split()) if path.exists() else []


def test_a_second_follower_sends_no_alert_again(tmp_path: Path) -> None:
    job = alerting_job(tmp_path)
    for _ in range(2):
        follow(job)
        assert told(tmp_path) == ["diverged", "failed"]
    assert job.folder is not None
    assert not [path for path in run_folder.artifacts(job.folder) if "alert" in path.name]


def test_a_run_that_was_resumed_and_fails_again_is_told_of_again(tmp_path: Path) -> None:
    job = alerting_job(tmp_path)
    follow(job)
    assert job.folder is not None
    log = journal_of(job.folder, 60_000)
    log.event(attempts.RESUME, 0, epoch_num=1, from_step=8, checkpoint="", after="nan")
    log.add("metrics", 0, values={"resume/count": 1})  # The loss is still the earlier attempt's.
    follow(job)
    assert told(tmp_path) == ["diverged", "failed"]
    job.result = failed_at(70_000)
    alerts = Alerts(make_console())  # of the launcher that resumed it: it reads the journal from there on
    alerts.ended(job)
    alerts.close()
    follow(job)
    assert told(tmp_path) == ["diverged", "diverged", "failed", "failed"]


def test_the_end_of_a_sweep_is_told_of_again_only_if_a_job_ended_anew(tmp_path: Path) -> None:
    job = alerting_job(tmp_path)
    for number, since_ms in enumerate((21_000, 21_000, 70_000, 70_000)):
        job.result = failed_at(since_ms)
        alerts = Alerts(make_console())
        alerts.sweep_ended([job], tmp_path)
        alerts.close()
        assert told(tmp_path) == ["sweep_ended"] * (1 + number // 2)


def test_an_alert_is_sent_if_its_folder_cannot_be_written(tmp_path: Path) -> None:
    job = alerting_job(tmp_path)
    assert job.folder is not None
    shutil.rmtree(job.folder)
    alerts = Alerts(make_console())
    alerts.ended(job)
    alerts.close()
    assert told(tmp_path) == ["diverged", "failed"]
