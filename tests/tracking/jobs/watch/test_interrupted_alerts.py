"""Ctrl-C while an alert's command runs: the command is killed, and nothing waits for its time limit."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from pathlib import Path

import pytest

from conf.launch_options import AlertConfig
from tests.support import studied
from tests.support.commands import HANGS_SEC, begin, collect
from tests.support.folders import wait_for
from tracking.base.console import make_console
from tracking.jobs.node import Interrupted, signals
from tracking.jobs.plan import Job
from tracking.jobs.watch import Alerts
from tracking.record import Failure, Result

# A command that leaves a file with its alert's name, and does not end by itself.
HANGS = "import os, sys, time; open(sys.argv[1] + os.environ['TIMETRIAL_ALERT'], 'w'); time.sleep(3600)"
FAILS_OR_GOES_ON = "import sys, time; print('loss 0.5'); time.sleep(0 if sys.argv[1] == '1' else 3600); sys.exit(1)"
KILLED = "when the launcher was stopped, and was killed"
LONGER_SEC = 2 * HANGS_SEC  # a time limit that no test waits for

pytestmark = pytest.mark.slow


def hanging(folder: Path) -> str:
    (folder / "hangs.py").write_text(HANGS)
    return f"{sys.executable} {folder / 'hangs.py'} {folder}/begun-"


def failed_job(folder: Path, command: str) -> Job:
    config = studied.config(runs_dir=str(folder), alert=AlertConfig(command, timeout_sec=LONGER_SEC))
    failed = Result("failed", failure=Failure("oom", "out of memory"))
    return Job(config, [], studied.make_run(folder, config, "sqlite:///none.db"), failed)


def interrupt_once(path: Path) -> None:
    """Press Ctrl-C once the file is there."""

    def press() -> None:
        wait_for(path.exists)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()


def test_ctrl_c_while_commands_are_waited_for_kills_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    signals.raise_on_signals()
    alerts = Alerts(make_console())
    alerts.ended(failed_job(tmp_path, hanging(tmp_path)))
    interrupt_once(tmp_path / "begun-failed")
    with pytest.raises(Interrupted):
        alerts.close()
    assert KILLED in capsys.readouterr().out


def test_a_launcher_that_was_interrupted_does_not_wait_for_commands_and_sends_later_alerts(tmp_path: Path) -> None:
    alerts = Alerts(make_console())
    alerts.ended(failed_job(tmp_path, hanging(tmp_path)))
    wait_for((tmp_path / "begun-failed").exists)
    alerts.close(interrupted=True)
    alerts.ended(failed_job(tmp_path, f"touch {shlex.quote(str(tmp_path / 'later'))}"))
    alerts.close()
    assert (tmp_path / "later").exists()


def test_ctrl_c_cancels_the_jobs_at_once_and_a_second_one_ends_the_alert_of_the_sweeps_end(tmp_path: Path) -> None:
    (tmp_path / "trains.py").write_text(FAILS_OR_GOES_ON)
    process = begin(
        tmp_path, "-m", "model=program", "program.command=python trains.py {seed}", "seed=1,2", "gpus=0",
        f"alert.command='{hanging(tmp_path)}'", f"alert.timeout_sec={LONGER_SEC}", "tracking.offline=true",
        "tracking.system_metrics_interval_sec=0",
    )  # fmt: skip
    for alert in ("failed", "sweep_ended"):
        begun = tmp_path / f"begun-{alert}"
        wait_for(lambda path=begun: path.exists() or process.poll() is not None)
        assert begun.exists()
        process.send_signal(signal.SIGINT)
    done = collect(process, tmp_path)
    assert done.code == 1, done.output
    assert "stopped by SIGINT" in done.output
    assert KILLED in done.output
