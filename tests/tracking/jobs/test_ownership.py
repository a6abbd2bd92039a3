"""Whose folder it is that is resumed: this user's own, or somebody else's, which runs only after trust=true."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from conf.schema import ConfigError
from tests.support.commands import launch
from tests.support.composing import composed
from tests.support.mlflow_server import answering
from tests.tracking.jobs.test_resume_request import GIVEN, asked, interrupted, refused
from tracking.base.console import make_console
from tracking.base.event_stream import EventStream
from tracking.jobs import ownership
from tracking.jobs.node import scheduler_endings, signals, slurm, ticket
from tracking.jobs.node.slurm import JobState
from tracking.jobs.node.ticket import Ticket
from tracking.jobs.plan import run_setup, sweep
from tracking.jobs.plan.job import Job
from tracking.jobs.queues import follow_later, launcher
from tracking.jobs.queues.following import Following
from tracking.jobs.queues.slurm_queues import BatchQueue
from tracking.record import journal, run_folder, signature


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this user keeps the key; the tests stand in another folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "state" / "timetrial"


def rewrite(folder: Path, **stack: object) -> None:
    """Have the folder name another stack, as a stranger would: with the hash that belongs to it."""
    path = folder / run_folder.CONFIG
    config = yaml.safe_load(path.read_text())
    config["stack"] |= stack
    path.write_text(yaml.safe_dump(config))
    hashed = run_folder.read_config(folder).config_hash()
    text = (folder / run_folder.JOURNAL).read_text()
    before = next(record for record, _ in journal.read(folder / run_folder.JOURNAL) if record.kind == "tags")
    (folder / run_folder.JOURNAL).write_text(text.replace(str(before.values["config_hash"]), hashed))


def test_what_somebody_changed_runs_only_after_it_was_shown(tmp_path: Path) -> None:
    folder = interrupted(tmp_path / "runs")
    assert asked(folder).checkpoint, "its own user's"
    rewrite(folder, env={"PYTHONPATH": "/tmp/evil"}, python="/tmp/evil/python", kind="python")
    words = refused(folder)
    assert "was not written by you on this machine, or was changed since" in words
    assert "the workload 'trainers.models.vgg:WORKLOAD'" in words
    assert "the interpreter '/tmp/evil/python'" in words
    assert "with PYTHONPATH='/tmp/evil'" in words
    assert words.endswith("add trust=true")
    assert asked(folder, "trust=true").config.stack.env == {"PYTHONPATH": "/tmp/evil"}


def test_another_users_folder_is_not_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(tmp_path / "runs")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert "trust=true" in refused(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    moved = shutil.move(folder, tmp_path / "elsewhere")
    assert asked(Path(moved)).checkpoint


@pytest.mark.parametrize("signature", [None, "", "0" * 64, "\x00", "é"])
def test_a_signature_is_needed(tmp_path: Path, signature: str | None) -> None:
    folder = interrupted(tmp_path / "runs")
    (folder / ".signature").unlink()
    if signature is not None:
        (folder / ".signature").write_text(signature)
    assert "trust=true" in refused(folder)


def test_the_key_is_this_users_alone(tmp_path: Path, home: Path) -> None:
    interrupted(tmp_path / "runs")
    (key,) = home.iterdir()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    first = key.read_bytes()
    interrupted(tmp_path / "runs")
    assert key.read_bytes() == first


def test_without_a_place_for_the_key_runs_start_and_only_resuming_asks(tmp_path: Path, home: Path) -> None:
    home.parent.write_text("no folder")
    folder = interrupted(tmp_path / "runs")
    assert not (folder / ".signature").exists()
    assert "trust=true" in refused(folder)
    assert asked(folder, "trust=true").checkpoint


def test_a_resumed_sweep_takes_an_alert() -> None:
    with sweep.create([Job(composed(GIVEN), GIVEN)], [], "sqlite:///x.db") as owner:
        folder = owner.folder
    words = ["alert.command=tell"]
    [job] = sweep.resume("runs", folder.name, [Job(composed(words), words)], multirun=False)[1]
    assert job.config.alert.command == "tell"


def test_a_sweep_that_somebody_changed_is_refused_and_one_that_grew_is_not() -> None:
    with sweep.create([Job(composed(GIVEN), GIVEN)], [], "sqlite:///x.db") as owner:
        folder = owner.folder
    more = [*GIVEN, "seed=7"]
    assert len(sweep.resume("runs", folder.name, [Job(composed(more), more)], multirun=True)[1]) == 2
    assert len(sweep.resume("runs", folder.name, [Job(composed([]), [])], multirun=False)[1]) == 2
    path = folder / sweep.DEFINITION
    definition = json.loads(path.read_text())
    definition["jobs"][1]["config"]["stack"]["env"] = {"LD_PRELOAD": "/tmp/evil.so"}
    path.write_text(json.dumps(definition))
    with pytest.raises(ConfigError, match=r"sweep.resume=.*LD_PRELOAD='/tmp/evil.so'.*trust=true"):
        sweep.resume("runs", folder.name, [Job(composed([]), [])], multirun=False)
    assert sweep.resume("runs", folder.name, [Job(composed(["trust=true", "sweep.resume=x"]), [])], multirun=False)


@pytest.mark.parametrize("killed_in", ["sign", "write_definition", "sign, the second time"])
def test_a_sweep_whose_launcher_was_killed_while_it_grew_is_ones_own(
    monkeypatch: pytest.MonkeyPatch, killed_in: str
) -> None:
    jobs = [Job(composed(words := [*GIVEN, f"seed={seed}"]), words) for seed in (1, 2)]
    with sweep.create(jobs[:1], [], "sqlite:///x.db") as owner:
        folder = owner.folder
    calls, sign, write = [], ownership.sign, sweep.write_definition

    def begin(name: str) -> None:
        calls.append(name)
        if (name if calls.count(name) == 1 else f"{name}, the second time") == killed_in:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ownership, "sign", lambda *given, **more: (begin("sign"), sign(*given, **more)))
        patched.setattr(sweep, "write_definition", lambda *given: (begin("write_definition"), write(*given)))
        with pytest.raises(KeyboardInterrupt):
            sweep.extend(folder, jobs, 1)
    grew = killed_in == "sign, the second time"
    assert len(sweep.resume("runs", folder.name, [Job(composed([]), [])], multirun=False)[1]) == 1 + grew


def name_server(folder: Path, uri: str) -> None:
    path = folder / run_folder.RUN
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tracking_uri": uri}))


@pytest.mark.parametrize(
    "change", [{"tracking_uri": "https://evil.example.org"}, {"uid": "e" * 32}, {"experiment": "e"}], ids=str
)
def test_what_says_where_a_run_is_recorded_is_signed_as_well(tmp_path: Path, change: dict[str, str]) -> None:
    folder = interrupted(tmp_path / "runs")
    path = folder / run_folder.RUN
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    words = refused(folder)
    assert "was not written by you on this machine, or was changed since" in words
    assert f"MLflow at '{change.get('tracking_uri', 'sqlite:////some/where.db')}'" in words
    assert asked(folder, "trust=true").checkpoint


def test_so_is_a_sweep_s(followed: list[Path]) -> None:
    config = composed(SLURM)
    with sweep.create([Job(config, SLURM)], [], "sqlite:///x.db") as owner:
        folder = owner.folder
    assert follow_later.follow(folder, 0.0) == 0
    name_server(folder, "https://evil.example.org")
    with pytest.raises(ConfigError, match=r"follow .*MLflow at 'https://evil.example.org'.*add --trust"):
        follow_later.follow(folder, 0.0)
    with pytest.raises(ConfigError, match=r"sweep.resume=.*MLflow at 'https://evil.example.org'.*add trust=true"):
        sweep.resume("runs", folder.name, [Job(composed([]), [])], multirun=False)


def test_what_an_earlier_version_signed_is_this_user_s(tmp_path: Path) -> None:
    folder = interrupted(tmp_path / "runs")
    signed = signature.sign(ownership._configurations([run_folder.read_config(folder)]))
    (folder / ".signature").write_text(str(signed))
    assert asked(folder).checkpoint
    (folder / ".signature").write_text("0" * 64)
    assert "trust=true" in refused(folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run", "sweep"])
def test_a_server_that_a_folder_names_is_sent_no_credentials_with_trust_either(tmp_path: Path, kind: str) -> None:
    here = tmp_path / "here"
    if kind == "sweep":
        with sweep.create([Job(composed(GIVEN), GIVEN)], [], "sqlite:///x.db") as owner:
            folder = owner.folder
    else:
        folder = interrupted(here / "runs")
    token = {"MLFLOW_TRACKING_TOKEN": "t0ken-4711"}
    with answering(401) as (uri, headers):
        name_server(folder, uri)
        resume = [f"sweep.resume={folder.name}"] if kind == "sweep" else [f"resume={folder}", "tracking.offline=false"]
        refused = launch(here, *resume, **token)
        assert (refused.code, headers) == (2, []), refused.output
        assert f"MLflow at '{uri}'" in refused.output
        trusted = launch(here, *resume, "trust=true", **token)
        assert set(headers) == {None}, trusted.output
        assert "only the run's folder has" in trusted.output


SLURM = ["gpus=0", "cluster=slurm", "cluster.before=['touch /tmp/ran']", "cluster.lines=['--chdir=/tmp']"]


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that a follower got to; nothing is asked of Slurm."""
    folders: list[Path] = []
    monkeypatch.setattr(launcher.Launcher, "follow", lambda self, folder: folders.append(folder) or 0)
    monkeypatch.setattr(signals, "raise_on_signals", lambda: None)
    return folders


@pytest.mark.parametrize("kind", ["sweep", "run"])
def test_a_folder_of_others_is_not_followed_since_its_jobs_would_be_submitted(
    kind: str, followed: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = composed(SLURM)
    if kind == "sweep":
        with sweep.create([Job(config, SLURM)], [], "sqlite:///x.db") as owner:
            folder = owner.folder
    else:
        with run_setup.make_folder("run", tmp_path / "runs") as owner:
            folder = owner.folder
        run_setup.prepare(folder, "run", config, SLURM, "sqlite:///x.db")
    assert follow_later.follow(folder, 0.0) == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    with pytest.raises(ConfigError, match=r"follow .*'touch /tmp/ran'.*'--chdir=/tmp'.*add --trust"):
        follow_later.follow(folder, 0.0)
    assert follow_later.follow(folder, 0.0, trust=True) == 0
    assert followed == [folder, folder]


def test_a_job_of_a_sweep_goes_on_by_its_own_folders_configuration_which_is_looked_at(tmp_path: Path) -> None:
    with sweep.create([Job(composed(GIVEN), GIVEN)], [], "sqlite:///x.db") as owner:
        folder = owner.folder
    inner = interrupted(folder, folder)
    assert sweep.resume("runs", folder.name, [Job(composed([]), [])], multirun=False)[1][0].checkpoint
    path = inner / run_folder.CONFIG
    path.write_text(path.read_text().replace("before: []", "before: [touch /tmp/ran]"))
    with pytest.raises(ConfigError, match=r"sweep.resume=.*'touch /tmp/ran'.*trust=true"):
        sweep.resume("runs", folder.name, [Job(composed([]), [])], multirun=False)


def test_the_job_that_a_strangers_ticket_names_is_neither_cancelled_nor_requeued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same holds for this user's own ticket in another run's folder."""
    own, others = interrupted(tmp_path / "runs"), interrupted(tmp_path / "runs")
    asked: list[str] = []
    monkeypatch.setattr(slurm, "run", lambda command: asked.append(" ".join(command)) or "")
    made = ticket.issue(own, Ticket("slurm", "4711", max_requeues=1))
    following = Following(
        BatchQueue(1, 1.0), SimpleNamespace(), make_console(), lambda job: None, 2, 0.0, EventStream()
    )
    for folder in (own, others):
        following.take_up(Job(composed(GIVEN), GIVEN, folder), made)
        scheduler_endings.requeued(folder, dataclasses.replace(made), JobState("NODE_FAIL"))
    assert asked == ["scontrol requeue 4711"]
    monkeypatch.setattr(Following, "follow", lambda *arguments: None)
    following.cancel(signals.Interrupted(signal.SIGINT))
    assert set(asked[1:]) == {"scancel 4711"}  # asked again while the job runs
    assert "was not written by you on this machine. That job is left alone" in others_words(following)


def others_words(following: Following) -> str:
    [failed] = [followed.job.result for followed in following._jobs if followed.job.result]
    return failed.failure.message if failed.failure else ""


@pytest.mark.slow
def test_nothing_of_a_strangers_folder_runs(tmp_path: Path) -> None:
    folder = interrupted(tmp_path / "runs")
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "sitecustomize.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    rewrite(folder, env={"PYTHONPATH": str(tmp_path / "evil")})
    launched = launch(tmp_path / "here", f"resume={folder}")
    assert launched.code == 2
    assert "add trust=true" in launched.output
    assert not (tmp_path / "ran").exists()
    alone = launch(tmp_path / "here", "trust=true")
    assert alone.code == 2
    assert "trust=true: has no effect without resume= or sweep.resume=" in alone.output
