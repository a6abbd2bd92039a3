"""Runs that can be continued, and refusals of others, with the next step."""

from __future__ import annotations

import copy
import json
import os
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from conf.schema import ConfigError, RunConfig
from tests.support.composing import EIGHT_GPUS, composed
from tracking.base.console import make_console
from tracking.jobs.node import reopen, signals
from tracking.jobs.plan import resume, run_setup, sweep
from tracking.jobs.plan.job import Job
from tracking.jobs.queues import follow_later
from tracking.jobs.queues.launcher import Launcher
from tracking.measure.training import throughput
from tracking.record import checkpoints, journal, run_folder, run_lock
from tracking.record.journal import Journal
from tracking.record.run_folder import Failure, Result
from tracking.request import checks
from tracking.request.command_line import arguments

GIVEN = ["gpus=0", "max_epochs=9", "checkpoint_every_epochs=2", "tracking.offline=true", "timeout_sec=5"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def interrupted(root: Path, sweep_folder: Path | None = None, epochs: tuple[int, ...] = (2, 4)) -> Path:
    """The folder of a run that was told to stop in its fifth epoch."""
    config = composed(GIVEN)
    with run_setup.make_folder(run_setup.run_name(config), root, sweep_folder) as owner:
        folder = owner.folder
        run_setup.prepare(folder, run_setup.run_name(config), config, GIVEN, "sqlite:////some/where.db", sweep_folder)
    log = Journal(folder / run_folder.JOURNAL)
    log.event("run_start")
    for epoch in range(1, 6):
        log.event("epoch_start", epoch_num=epoch)
        window = throughput.Window(10 * epoch, epoch, 1, (0.001,), (0.0,), (0.001,), (0.0,))
        log.event("throughput_window", **throughput.event_values(window))
        log.metrics({"train/loss": 1.0}, 10 * epoch)
    log.close()
    for epoch in epochs:
        save(folder, epoch)
    run_folder.write_result(folder, Result("killed", failure=Failure("signal:15", "stopped by SIGTERM")))
    return folder


def save(folder: Path, epoch: int) -> None:
    path = checkpoints.path_of(folder, epoch)
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights", bytes(1000))


def test_it_is_mirrored_to_where_it_was_from_whatever_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder, followed = interrupted(tmp_path), []
    config = run_folder.read_config(folder)
    config.cluster.kind = "slurm"
    monkeypatch.setattr(run_folder, "read_config", lambda folder: config)

    def launcher(config: RunConfig, *arguments: object) -> SimpleNamespace:
        followed.append(config.tracking.uri)
        return SimpleNamespace(follow=lambda folder: 0)

    monkeypatch.setattr(follow_later, "Launcher", launcher)
    assert follow_later.follow(folder, 0.0, trust=True) == 0
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////some/where.db")
    assert follow_later.follow(folder, 0.0, trust=True) == 0
    assert followed == ["sqlite:////some/where.db", None]


def test_who_follows_a_run_that_was_detached_stays_with_it_and_mirrors_it_where_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, jobs = interrupted(tmp_path), []
    config = run_folder.read_config(folder)
    config.cluster.kind, config.detach = "slurm", True
    monkeypatch.setattr(run_folder, "read_config", lambda folder: copy.deepcopy(config))
    monkeypatch.setattr(signals, "raise_on_signals", lambda: None)

    def follow_single(launcher: Launcher, job: Job, folder: Path) -> int:
        jobs.append(job)
        return 0

    monkeypatch.setattr(Launcher, "_follow_single", follow_single)
    assert follow_later.follow(folder, 0.0, trust=True) == 0
    assert [(job.config.detach, job.result) for job in jobs] == [(False, None)]


def asked(folder: Path, *overrides: str, multirun: bool = False) -> Job:
    given = [f"resume={folder}", *overrides]
    arguments.check_resumed(given, multirun)
    return resume.resumed_job(Job(composed(given), given))


def refused(folder: Path, *overrides: str, multirun: bool = False) -> str:
    with pytest.raises(ConfigError) as error:
        asked(folder, *overrides, multirun=multirun)
    return str(error.value)


def test_the_configuration_is_that_of_the_folder(tmp_path: Path) -> None:
    folder = interrupted(tmp_path / "runs")
    job = asked(folder)
    assert job.config.max_epochs == 9
    assert job.config.gpus == 0
    assert job.config.timeout_sec == 5
    assert job.config.tracking.offline
    assert job.config.tracking.uri == "sqlite:////some/where.db"
    assert job.overrides == GIVEN
    assert job.checkpoint
    assert (job.checkpoint.folder, job.checkpoint.epoch_num) == (folder, 4)
    assert job.config.config_hash() == composed(GIVEN).config_hash()


def test_what_is_not_measured_can_be_given_anew(tmp_path: Path) -> None:
    folder = interrupted(tmp_path / "runs")
    settings = ("timeout_sec=60", "tracking.offline=false", "tracking.upload_wait_sec=1", "dry_run=true")
    config = asked(folder.relative_to(tmp_path), *settings).config
    assert (config.timeout_sec, config.tracking.offline, config.tracking.upload_wait_sec) == (60, False, 1)
    assert config.dry_run
    assert config.max_epochs == 9


@pytest.mark.parametrize(
    "override",
    ["seed=2", "gpus=0", "model.optimizer.lr=1", "checkpoint_every_epochs=1", "runs_dir=x", "sweep.resume=x",
     "tracking.experiment=x", "tracking.uri=sqlite:///x", "+stack.expect.torch=2"],
)  # fmt: skip
def test_what_would_be_another_run_is_refused_by_name(tmp_path: Path, override: str) -> None:
    words = refused(interrupted(tmp_path / "runs"), override)
    assert f" {override}: " in words
    assert "timeout_sec" in words


@pytest.mark.parametrize("override", ["gpus=4", "strategy=ddp", "nodes=2"])
def test_other_devices_are_refused_with_why_and_what_to_do(tmp_path: Path, override: str) -> None:
    words = refused(interrupted(tmp_path / "runs"), override)
    assert "keeps the configuration in its folder, since its rates and cost must come from the same devices" in words
    assert words.endswith(f"Next: leave {override.partition('=')[0]} out, or begin a new run with {override}")


def test_a_machine_with_fewer_gpus_than_the_run_is_refused() -> None:
    config = checks.check_run(composed(["gpus=4"]), EIGHT_GPUS)
    resume.check_devices(config, 4)
    with pytest.raises(ConfigError, match=r"resume: the run began with gpus=4, but 2 are visible .* Next: resume it"):
        resume.check_devices(config, 2)


def test_several_at_once_are_refused(tmp_path: Path) -> None:
    assert "leave -m out" in refused(interrupted(tmp_path / "runs"), multirun=True)


def test_a_folder_of_no_run_and_a_sweep_are_refused(tmp_path: Path) -> None:
    assert "not a run's folder" in refused(tmp_path / "nothing")
    with sweep.create([Job(composed(GIVEN), GIVEN)], [], "sqlite:///x.db") as owner:
        folder = owner.folder
    assert f"sweep.resume={folder.name}" in refused(folder)


def test_a_run_that_has_finished_is_refused(tmp_path: Path) -> None:
    folder = interrupted(tmp_path / "runs")
    run_folder.write_result(folder, Result("finished"))
    assert "has finished" in refused(folder)


@pytest.mark.parametrize("has_result", [True, False])
def test_a_run_that_goes_on_is_refused(tmp_path: Path, has_result: bool) -> None:
    folder = interrupted(tmp_path / "runs")
    if not has_result:
        (folder / run_folder.RESULT).unlink()
    with run_lock.hold(folder):
        assert "runs it. Next: stop it, or wait for its end" in refused(folder)
    assert asked(folder).checkpoint


def test_a_run_that_may_go_on_elsewhere_is_refused_until_somebody_says_that_it_does_not(tmp_path: Path) -> None:
    folder = interrupted(tmp_path / "runs")
    path = folder / run_folder.RUN_LOCK
    path.write_text(json.dumps(json.loads(path.read_text()) | {"host": "elsewhere", "boot_id": "another"}))
    assert asked(folder).checkpoint, "it has a result: so it has ended"
    (folder / run_folder.RESULT).unlink()
    words = refused(folder)
    assert "elsewhere" in words
    assert f"python -m tracking sync --ended {folder}" in words


def unended(words: dict[str, str]) -> tuple[Path, Path, Job]:
    """A sweep, its one job's folder without a result, which was run by who is known by these words, and the job."""
    with sweep.create([Job(composed(GIVEN), GIVEN)], [], "sqlite:///x.db") as owner:
        folder = owner.folder
    inner = interrupted(folder, folder)
    (inner / run_folder.RESULT).unlink()
    path = inner / run_folder.RUN_LOCK
    path.write_text(json.dumps(json.loads(path.read_text()) | words))
    return folder, inner, sweep.read(folder)[0]


def test_a_sweep_waits_for_a_job_that_still_runs_and_refuses_what_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    folder, inner, job = unended({})
    console = make_console()
    held = run_lock.take(inner)
    monkeypatch.setattr(resume, "WAIT_SEC", 0.0)
    with pytest.raises(ConfigError, match=f"process {os.getpid()} on .* runs it. Next: wait for its end, or stop it$"):
        resume.settle(folder, [job], False, console)
    monkeypatch.setattr(resume, "WAIT_SEC", 900.0)
    monkeypatch.setattr(console, "print", lambda *_, **__: held.release())  # It ends once it is waited for.
    resume.settle(folder, [job], False, console)
    assert job.result
    assert job.result.status == "killed"
    assert job.checkpoint
    assert job.checkpoint.folder == inner


def test_a_sweep_does_not_run_a_job_that_may_run_elsewhere() -> None:
    folder, inner, job = unended({"host": "elsewhere", "boot_id": "another"})
    with pytest.raises(ConfigError, match=f"elsewhere.*or end it with: python -m tracking sync --ended {inner}$"):
        resume.settle(folder, [job], False, make_console())


def test_a_run_without_a_checkpoint_is_refused_with_the_command_that_runs_it_anew(tmp_path: Path) -> None:
    words = refused(interrupted(tmp_path / "runs", epochs=()))
    assert "checkpoint_every_steps or checkpoint_every_epochs was not set" in words
    assert f"run it anew: python launch.py {' '.join(GIVEN)}" in words


def test_damaged_checkpoints_are_passed_over_or_named(tmp_path: Path) -> None:
    folder = interrupted(tmp_path / "runs")
    for epoch in (4, 2):
        path = checkpoints.path_of(folder, epoch)
        path.write_bytes(path.read_bytes()[:-20])
        if epoch == 4:
            checkpoint = asked(folder).checkpoint
            assert checkpoint
            assert checkpoint.epoch_num == 2
    assert "damaged: epoch4.ckpt, epoch2.ckpt" in refused(folder)


def test_a_configuration_that_was_changed_since_is_refused(tmp_path: Path) -> None:
    folder = interrupted(tmp_path / "runs")
    path = folder / run_folder.CONFIG
    config = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(config | {"seed": 2}))
    assert "differs from the one it began with" in refused(folder)
    path.write_text(yaml.safe_dump(config | {"sede": 2}))
    assert "sede: no such option" in refused(folder)


def test_reopening_sets_the_files_aside_and_says_where_it_goes_on(tmp_path: Path) -> None:
    folder = interrupted(tmp_path / "runs")
    for number in (1, 2):
        for name in ("worker.log", "fingerprint.json", "failure.rank0.json"):
            (folder / name).write_text(f"of attempt {number}")
        checkpoint = asked(folder).checkpoint
        assert checkpoint
        reopen(folder, checkpoint)
        for name in (f"worker.{number}.log", f"fingerprint.{number}.json", f"failure.{number}.rank0.json"):
            assert (folder / name).read_text() == f"of attempt {number}"
        assert not (folder / "failure.rank0.json").exists()
        assert run_folder.read_result(folder) is None
        assert (folder / run_folder.RESERVE).exists(), "room for the next result"
        run_folder.write_result(folder, Result("failed", failure=Failure("oom", "no room")))
    events = [event for event in journal.events(folder / run_folder.JOURNAL) if event.key == "resume"]
    expected = {"epoch_num": 4, "from_step": 40, "checkpoint": "checkpoints/epoch4.ckpt"}
    assert [event.values for event in events] == [expected | {"after": after} for after in ("signal:15", "oom")]
    tags: dict[str, object] = {}
    for row, _ in journal.read(folder / run_folder.JOURNAL):
        tags |= row.values if row.kind == "tags" else {}
    assert (tags["resumed"], tags["resumed.after"]) == (2, "signal:15,oom")
    assert [path.name for path in run_folder.earlier_attempts(folder, "fingerprint.json")] == [
        "fingerprint.1.json",
        "fingerprint.2.json",
    ]


def test_a_sweeps_job_goes_on_in_the_newest_folder_with_a_checkpoint(tmp_path: Path) -> None:
    job = Job(composed(GIVEN), GIVEN)
    with sweep.create([job], [], "sqlite:///x.db") as owner:
        folder = owner.folder
    kept = interrupted(folder, folder)
    interrupted(folder, folder, epochs=())  # newer, and without
    (resumed,) = sweep.resume("runs", folder.name, [Job(composed([]), [])], multirun=False)[1]
    assert resumed.checkpoint
    assert resumed.checkpoint.folder == kept
    with run_lock.hold(kept):
        (resumed,) = sweep.resume("runs", folder.name, [Job(composed([]), [])], multirun=False)[1]
        assert resumed.checkpoint is None, "somebody is at work there"
    run_folder.write_result(kept, Result("finished"))
    (resumed,) = sweep.resume("runs", folder.name, [Job(composed([]), [])], multirun=False)[1]
    assert resumed.finished
    assert resumed.checkpoint is None


def test_an_environment_that_changed_between_attempts_is_named() -> None:
    from tracking.machine.environment import fingerprint

    def taken(torch: str, node: str) -> fingerprint.Fingerprint:
        return {"software": {"torch": torch, "python": "3.11"}, "host": {"cpu": "x", "kernel": "6", "node": node}}

    assert fingerprint.changes([taken("2.11", "a")]) == []
    assert fingerprint.changes([taken("2.11", "a"), taken("2.11", "a")]) == []
    assert fingerprint.changes([taken("2.11", "a"), taken("2.12", "b"), taken("2.11", "a")]) == [
        "env.node",
        "env.torch",
    ]


def test_the_note_says_that_it_is_no_uninterrupted_run(tmp_path: Path) -> None:
    folder = interrupted(tmp_path / "runs")
    checkpoint = asked(folder).checkpoint
    assert checkpoint
    reopen(folder, checkpoint)
    note = "resumed after epoch 4, with epoch 5 from its start: no time to accuracy"
    assert note in (folder / run_folder.JOURNAL).read_text()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"argv": [], "jo', "is damaged"), ('{"argv": []}', "is not the definition"),
        ("[]", "is not the definition"),
        ('{"argv": [], "jobs": [{"config": {"of_later": 1}, "overrides": []}]}', "of_later: no such option"),
    ],
)  # fmt: skip
def test_a_sweep_whose_definition_cannot_be_read_is_refused(tmp_path: Path, text: str, why: str) -> None:
    folder = tmp_path / "runs" / "a"
    folder.mkdir(parents=True)
    (folder / sweep.DEFINITION).write_text(text)
    with pytest.raises(ConfigError, match=rf"^sweep\.resume=a: its sweep\.json cannot be read: .*{why}.* Next: put it"):
        sweep.resume("runs", "a", [Job(composed([]), [])], multirun=False)
