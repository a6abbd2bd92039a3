"""Opens the folder of a job that is about to run: a new folder, or an interrupted run's if it can continue."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from conf.schema import ConfigError, RunConfig
from tracking.base.installation import LAUNCH, TRACKING
from tracking.base.paths import with_home
from tracking.base.secrets import strip_credentials
from tracking.jobs import ownership
from tracking.jobs.node import reopen, scheduler_endings, ticket
from tracking.jobs.plan import run_setup, sweep
from tracking.jobs.plan.job import Job
from tracking.jobs.plan.repair import repair
from tracking.record import Checkpoint, checkpoints, files, journal, run_folder, run_lock
from tracking.request import refusal, stored_config
from tracking.store import server

WAIT_SEC = 60.0  # longer than the processes of a killed launcher take to end by themselves
RETRY_SEC = 0.5


def resumed_job(requested: Job) -> Job:
    """The job that continues the run in the folder `requested.config.resume`, with that run's configuration.

    The requested options replace the folder's. Raises ConfigError if the run cannot be continued.
    """
    option = f"resume={requested.config.resume}"
    folder = with_home(str(requested.config.resume)).resolve()
    keys = [override.partition("=")[0].lstrip("+~") for override in requested.overrides]
    check_interrupted(folder, option)
    config = run_folder.read_config(folder)
    check_unchanged(folder, option, config)
    ownership.check(folder, [config], option, requested.config.trust)
    for key in keys:
        take_over(config, requested.config, key)
    config.tracking.uri = own_server(folder)
    config.sweep.resume = None  # it only says how the job was added to its sweep
    try:
        overrides = stored_config.loaded(files.read_text(folder / run_folder.OVERRIDES))
    except ValueError as error:
        raise ConfigError(f"{option}: {run_folder.OVERRIDES} {error}. Next: put a copy in place") from None
    return Job(config, overrides, checkpoint=usable_checkpoint(folder, option, overrides))


def check_devices(config: RunConfig, num_visible: int) -> None:
    """Raise ConfigError if this machine has fewer GPUs than the run began with: it has to continue with as many."""
    if config.cluster.kind == "none" and config.num_gpus() > num_visible:
        raise ConfigError(
            f"resume: the run began with gpus={config.num_gpus()}, but {num_visible} are visible on this machine. It"
            " has to continue with as many, since its rates and cost count them. Next: resume it on a machine with"
            f" {config.num_gpus()} GPUs, or check nvidia-smi and CUDA_VISIBLE_DEVICES"
        )


def own_server(folder: Path) -> str | None:
    """The tracking.uri of a run's or sweep's original server, independent of the working directory.

    None if the environment names the same server: it may hold the credentials, which the folder does not.
    """
    stored = run_folder.read_info(folder).tracking_uri
    return None if strip_credentials(server.default_uri()) == stored else stored


def check_interrupted(folder: Path, option: str) -> None:
    """Raise ConfigError unless the folder holds an interrupted run."""
    if files.exists(folder / sweep.DEFINITION):
        raise ConfigError(f"{option}: is a sweep. Next: continue it with {refusal.resuming(folder)}")
    if not files.exists(folder / run_folder.CONFIG):
        raise ConfigError(
            f"{option}: not a run's folder ({run_folder.CONFIG} is missing). Next: give a folder in runs_dir"
        )
    result = run_folder.read_result(folder)
    if result is not None and result.status == "finished":
        raise ConfigError(f"{option}: has finished. Next: read its result in {run_folder.RESULT}")
    try:
        scheduled = scheduler_endings.failure_of(folder)  # A queued job has no process yet.
        with run_lock.hold_abandoned(folder, ended=result is not None or scheduled is not None):
            pass
    except run_lock.Running as error:
        end_it = "" if error.certain else f", or end it with: {TRACKING} sync --ended {shlex.quote(str(folder))}"
        raise ConfigError(f"{option}: {error}. Next: stop it, or wait for its end{end_it}") from error


def check_unchanged(folder: Path, option: str, config: RunConfig) -> None:
    """Raise ConfigError if the configuration has changed since the run began."""
    rows = (row for row, _ in journal.read(folder / run_folder.JOURNAL) if row.kind == "tags")
    began = next((row.values["config_hash"] for row in rows if "config_hash" in row.values), None)
    if began != config.config_hash():
        raise ConfigError(
            f"{option}: its configuration differs from the one it began with (config_hash {config.config_hash()} now,"
            f" {began} then): {run_folder.CONFIG} was changed, or this version has other options."
            " Next: put it back, or run anew"
        )


def usable_checkpoint(folder: Path, option: str, overrides: list[str]) -> Checkpoint:
    """The newest whole checkpoint. Raises ConfigError if none is usable."""
    newest = checkpoints.newest(folder)
    if newest is None:
        damaged = ", ".join(checkpoint.path.name for checkpoint in checkpoints.in_folder(folder))
        unset = "checkpoint_every_steps or checkpoint_every_epochs was not set, or the first was not reached"
        why = f"damaged: {damaged}" if damaged else unset
        anew = f"{LAUNCH} {shlex.join(overrides)}"
        raise ConfigError(f"{option}: has no checkpoint to continue from ({why}). Next: run it anew: {anew}")
    return newest


def take_over(config: RunConfig, requested: RunConfig, key: str) -> None:
    """Copy the value of a dotted key from `requested` to `config`."""
    *groups, name = key.split(".")
    section, requested_section = config, requested
    for group in groups:
        section, requested_section = getattr(section, group), getattr(requested_section, group)
    setattr(section, name, getattr(requested_section, name))


def settle(folder: Path, jobs: Sequence[Job], adopts: bool, console: Console) -> None:
    """Wait for earlier runs of unfinished jobs to end, then set the jobs' results and checkpoints.

    With `adopts`, runs that a scheduler holds are kept. Raises ConfigError for a run that does not end.
    """
    unfinished = [job for job in jobs if not job.finished]
    hashed = sweep.folders_by_hash(folder)
    by_job = [(job, hashed.get(job.config.config_hash(), [])) for job in unfinished]
    scheduled = [path for _, paths in by_job for path in paths if not end_of(path, adopts, console)]
    sweep.find_results(unfinished, hashed)
    sweep.find_checkpoints(unfinished, hashed)
    for job, paths in by_job:
        for path in paths:
            if path in scheduled:
                job.folder, job.result, job.checkpoint = path, None, None


def end_of(folder: Path, adopts: bool, console: Console) -> bool:
    """Whether the run has ended. False only for a run that a scheduler holds, if the caller `adopts` such runs."""
    deadline, waits = time.monotonic() + WAIT_SEC, False
    while True:
        try:
            with suppress(OSError, ValueError):  # `sync` reports a broken folder
                if may_be_queued_again(folder):
                    scheduler_endings.failure_of(folder)
                repair(folder)
            return True
        except run_lock.Running as error:
            if adopts and is_scheduled(folder):
                return False
            if not error.certain or time.monotonic() > deadline:
                ended = "" if error.certain else f", or end it with: {TRACKING} sync --ended {shlex.quote(str(folder))}"
                raise ConfigError(f"{folder}: {error}. Next: wait for its end, or stop it{ended}") from error
            if not waits:
                console.print(f"{folder.name}: {error}; waiting for its end", soft_wrap=True)
            waits = True
            time.sleep(RETRY_SEC)


def may_be_queued_again(folder: Path) -> bool:
    """Whether a scheduler may requeue a run that already has an earlier attempt's result."""
    made, result = ticket.read(folder), run_folder.read_result(folder)
    return bool(made and made.max_requeues and result and result.status != "finished")


def is_scheduled(folder: Path) -> bool:
    with suppress(OSError, ValueError):
        made = ticket.read(folder)
        return made is not None and made.kind == "slurm"
    return False


def own_folder(
    job: Job, root: Path, sweep: Path | None, uri: str, say: Callable[[str], None]
) -> run_lock.Owner:  # fmt: skip
    """Lock of a job's folder: a new folder, or its checkpoint's folder reopened. Raises OSError, ConfigError."""
    if job.checkpoint is not None:
        return _reopened(job.checkpoint, job.config.cluster.kind == "slurm", say)
    owner = run_setup.make_folder(job.name, root, sweep)
    with run_setup.removed_unless_whole(owner):
        run_setup.prepare(owner.folder, job.name, job.config, job.overrides, uri, sweep)
    return owner


def _reopened(checkpoint: Checkpoint, on_slurm: bool, say: Callable[[str], None]) -> run_lock.Owner:
    folder = checkpoint.folder
    try:
        repair(folder)  # writes the result of the attempt that was cut off
        owner = run_lock.take(folder)
    except run_lock.Running as error:  # another launcher took the run after it was checked
        raise ConfigError(f"{folder}: {error}. Next: wait for its end") from error
    damaged = [other.path.name for other in checkpoints.in_folder(folder) if other.place > checkpoint.place]
    reopen(folder, checkpoint)
    if not on_slurm:  # An old ticket would name an earlier attempt's job.
        for name in (ticket.FILE, ticket.SCRIPT):
            (folder / name).unlink(missing_ok=True)
    note = f" ({', '.join(damaged)}: damaged)" if damaged else ""
    say(f"{folder.name}: continues after {checkpoint.words}{note}")
    return owner
