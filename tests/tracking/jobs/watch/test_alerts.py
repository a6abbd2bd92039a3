"""alert.command: who it is told of, what it is given, and what its own trouble costs a sweep."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
import tracemalloc
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from conf.launch_options import AlertConfig
from conf.schema import ConfigError
from tests.support import studied
from tests.support.commands import launch
from tracking.base.console import make_console
from tracking.jobs.plan import Job
from tracking.jobs.watch import Alerts, alert_command
from tracking.record import Failure, Record, Result, documents, journal, run_folder
from tracking.request.output_checks import check_alert

SECRET = "s3cr3t-Of-The-Server"
KEEPS = """
import json, os, sys
from pathlib import Path
told = json.load(sys.stdin)
folder = Path(sys.argv[1])
name = f"{len(list(folder.glob('*.json')))}-{told['alert']}-{os.getpid()}.json"
folder.joinpath(name).write_text(json.dumps({"stdin": told, "environ": dict(os.environ)}))
"""
FAILS = "import sys; sys.exit('no such page for " + SECRET + "')"
TRAINS = "print('loss 0.5'); import sys; sys.exit({seed} == 2)"
OFFLINE = ("tracking.offline=true", "tracking.system_metrics_interval_sec=0")


def keeping(tmp_path: Path) -> str:
    """A command that keeps what it is given in the folder `told`."""
    (tmp_path / "told").mkdir(exist_ok=True)
    (tmp_path / "keeps.py").write_text(KEEPS)
    return f"{sys.executable} {tmp_path / 'keeps.py'} {tmp_path / 'told'}"


def told(tmp_path: Path) -> list[dict[str, Any]]:
    return [documents.read_json(path) for path in sorted((tmp_path / "told").glob("*.json"))]


def job(tmp_path: Path, command: str, step_sec: float = 0.1, **alert: float) -> Job:
    config = studied.config(runs_dir=str(tmp_path / "runs"), seed=9)
    (tmp_path / "runs").mkdir(exist_ok=True)
    folder = studied.make_run(tmp_path / "runs", config, "sqlite:///none.db", step_sec, fingerprint=FACTS)
    config = dataclasses.replace(config, alert=AlertConfig(command, **alert))
    return Job(config, [], folder)


FACTS = {"used": [], "software": {"torch": "2.11"}, "host": {"cpu": "a CPU"}}


@pytest.mark.slow
def test_a_failed_job_and_the_end_of_a_sweep_are_told_of_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "trains.py").write_text("import sys; print('loss 0.5'); sys.exit(int(sys.argv[1]) == 2)")
    program = "program.command=python trains.py {seed}"
    done = launch(
        tmp_path, "-m", "model=program", program, "seed=1,2", "gpus=0", f"alert.command='{keeping(tmp_path)}'",
        *OFFLINE, MLFLOW_TRACKING_PASSWORD=SECRET, CHAT_TOKEN=SECRET, PAGE=f"https://a:{SECRET}@chat/x",
    )  # fmt: skip
    assert done.code == 1, done.output
    alerts = told(tmp_path)
    assert [alert["stdin"]["alert"] for alert in alerts] == ["failed", "sweep_ended"]
    failed, ended = (alert["stdin"] for alert in alerts)
    assert Path(failed["folder"], run_folder.RUN).exists()
    assert (failed["status"], failed["failure"]) == ("failed", "error")
    assert [row["outcome"].split()[0] for row in ended["jobs"]][1] == "failed:"
    assert ended["text"].endswith("1 of 2 jobs finished")
    environ = alerts[0]["environ"]
    assert environ["TIMETRIAL_ALERT"] == "failed"
    assert environ["TIMETRIAL_ALERT_TEXT"] == failed["text"]
    assert environ["TIMETRIAL_ALERT_FOLDER"] == failed["folder"]
    assert SECRET not in json.dumps(alerts)
    assert "CHAT_TOKEN" not in environ


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words"),
    [
        (FAILS, "exit code 1"),
        ("import time; time.sleep(600)", "longer than alert.timeout_sec=1, and was killed"),
        ("import sys; sys.stderr.buffer.write(b'no \\xff'); sys.exit(3)", "exit code 3: no \N{REPLACEMENT CHARACTER}"),
        ("import os; os.close(2); os.close(0); os._exit(4)", "exit code 4"),
    ],
)
def test_a_command_that_fails_or_hangs_is_told_of_once_and_costs_nothing_else(
    tmp_path: Path, script: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT_TOKEN", SECRET)
    (tmp_path / "alerting.py").write_text(script)
    failing = job(tmp_path, f"{sys.executable} {tmp_path / 'alerting.py'}", timeout_sec=1)
    failing.result = Result("failed", failure=Failure("oom", "out of memory"))
    alerts, began = Alerts(make_console()), time.monotonic()
    alerts.ended(failing)
    assert time.monotonic() - began < 1  # It is not waited for.
    alerts.sweep_ended([failing], tmp_path)
    alerts.close()
    printed = capsys.readouterr().out
    assert printed.count("alert.command") == 1
    assert words in printed
    assert SECRET not in printed


ENDLESS = "import os\nwhile True: os.write(2, bytes(1 << 20))"
CHILD = "import os, sys, time\nif os.fork() == 0: os.setsid(); time.sleep(45)\nsys.exit('it failed')"


@pytest.mark.slow
def test_of_endless_words_only_the_last_are_kept(tmp_path: Path) -> None:
    """A launcher without memory would end its runs."""
    content = {"alert": "failed", "text": "x" * 2**18, "folder": str(tmp_path)}  # more than a variable may hold
    tracemalloc.start()
    with pytest.raises(RuntimeError, match=r"longer than alert\.timeout_sec=1"):
        alert_command.run([sys.executable, "-c", ENDLESS], content, 1, Event())
    assert tracemalloc.get_traced_memory()[1] < 2**21
    tracemalloc.stop()


@pytest.mark.slow
def test_a_child_that_outlives_a_command_does_not_hold_it_up(tmp_path: Path) -> None:
    content, began = {"alert": "failed", "text": "", "folder": str(tmp_path)}, time.monotonic()
    with pytest.raises(RuntimeError, match="exit code 1: it failed"):
        alert_command.run([sys.executable, "-c", CHILD], content, 60, Event())
    assert time.monotonic() - began < 40


@pytest.mark.slow
def test_the_end_of_an_interrupted_sweep_names_the_jobs_that_did_not_run(tmp_path: Path) -> None:
    """They have no result."""
    finished, not_run = job(tmp_path, keeping(tmp_path)), job(tmp_path, "true")
    assert finished.folder is not None
    finished.result = run_folder.read_result(finished.folder)
    alerts = Alerts(make_console())
    alerts.sweep_ended([finished, not_run], tmp_path)
    alerts.close()
    (alert,) = told(tmp_path)
    assert alert["stdin"]["text"].endswith("1 of 2 jobs finished")
    assert alert["stdin"]["jobs"][1]["outcome"] == "not run"


@pytest.mark.slow
def test_a_loss_that_is_no_number_or_rises_is_told_of_once(tmp_path: Path) -> None:
    for losses in ([1.0, float("nan"), float("nan")], [1.0, 0.5, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6]):
        diverging, alerts = job(tmp_path, keeping(tmp_path)), Alerts(make_console())
        for loss in losses:
            alerts.see(diverging, Record("metrics", 0, 0.0, values={"train/loss": loss}))
        alerts.close()
    assert [alert["stdin"]["alert"] for alert in told(tmp_path)] == ["diverged", "diverged"]
    assert {alert["stdin"]["text"].split("train/loss is ")[1][:3] for alert in told(tmp_path)} == {"nan", "2.5"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step_sec", "facts", "kinds"),
    [(0.25, FACTS, ["slow"]), (0.18, FACTS, []), (0.25, FACTS | {"host": {"cpu": "another"}}, [])],
)
def test_a_run_half_as_fast_as_earlier_ones_of_its_setting_and_hardware_is_told_of(
    tmp_path: Path, step_sec: float, facts: dict[str, Any], kinds: list[str]
) -> None:
    slow = job(tmp_path, keeping(tmp_path), step_sec)
    assert slow.folder is not None
    (slow.folder / run_folder.RESULT).unlink()
    for seed in (1, 2, 3):
        config = studied.config(runs_dir=str(tmp_path / "runs"), seed=seed)
        studied.make_run(tmp_path / "runs", config, "sqlite:///none.db", fingerprint=facts)
    alerts = Alerts(make_console())
    for record, _ in journal.read(slow.folder / run_folder.JOURNAL):
        alerts.see(slow, record)
    alerts.close()
    assert [alert["stdin"]["alert"] for alert in told(tmp_path)] == kinds


def test_a_record_that_is_not_understood_ends_no_launcher(tmp_path: Path) -> None:
    alerts = Alerts(make_console())
    for values in ({"train/loss": None}, {"train/loss": "low"}):
        alerts.see(job(tmp_path, "true"), Record("metrics", 0, 0.0, values=values))
    for ms in ([None], 3):
        alerts.see(job(tmp_path, "true"), Record("event", 0, 0.0, "throughput_window", values={"rank_ms": ms}))
    alerts.close()


def test_the_past_of_a_job_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    monkeypatch.setattr("tracking.jobs.watch.alerts.past_rates", lambda folder, config: reads.append(folder) or [100.0])
    running, alerts = job(tmp_path, "true"), Alerts(make_console())
    for _ in range(16):
        values = {"rank_ms": [1000.0], "samples": 100}
        alerts.see(running, Record("event", 0, 0.0, "throughput_window", values=values))
        alerts.close()
    assert reads == [running.folder]


@pytest.mark.slow
def test_who_was_stopped_on_purpose_is_not_told_of(tmp_path: Path) -> None:
    stopped, alerts = job(tmp_path, keeping(tmp_path)), Alerts(make_console())
    stopped.result = Result("killed", failure=Failure("signal:2", "Ctrl-C"))
    alerts.ended(stopped)
    alerts.close()
    assert told(tmp_path) == []


@pytest.mark.parametrize(
    ("alert", "words"),
    [
        (AlertConfig("no-such-program x"), "no such program. Next"),
        (AlertConfig("sh 'x"), "close the quotes"),
        (AlertConfig("true", 0), "alert.timeout_sec=0: must be above 0"),
        (AlertConfig(None, 3), "has no effect without alert.command"),
    ],
)
def test_a_command_that_could_not_be_started_is_refused_before_anything_trains(alert: AlertConfig, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_alert(alert)
