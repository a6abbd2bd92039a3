"""The folder of a sweep: its definition, its jobs' folders, and the journal of its parent run."""

from __future__ import annotations

import argparse
import dataclasses
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.base import quantities
from tracking.base.installation import LAUNCH
from tracking.base.number_text import counted
from tracking.base.safe_text import in_markdown
from tracking.jobs import ownership
from tracking.jobs.plan import run_setup, sweep_cost, sweep_summary, sweep_view
from tracking.jobs.plan.job import Job
from tracking.measure.bottleneck import goodput
from tracking.record import NOTE_TAG, Failure, Journal, Result, checkpoints, documents, files, run_folder, run_lock
from tracking.request import stored_config
from tracking.store.mirror import shortened

DEFINITION = "sweep.json"
MAX_TITLE = 120  # characters
MAX_VARIED = 60  # characters


def create(jobs: Sequence[Job], argv: Sequence[str], uri: str) -> run_lock.Owner:
    """Lock of a sweep's new folder, held by this process. Raises ConfigError if the folder cannot be made."""
    config = jobs[0].config
    sweep_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{config.model.name}-{secrets.token_hex(2)}"
    try:
        owner = run_lock.make(Path(config.runs_dir), sweep_id)
        with run_setup.removed_unless_whole(owner):
            prepare(owner.folder, jobs, argv, uri)
    except OSError as error:
        raise ConfigError(f"runs_dir={config.runs_dir}: {error}. Next: give a folder that you can write to") from error
    return owner


def prepare(folder: Path, jobs: Sequence[Job], argv: Sequence[str], uri: str) -> None:
    """Fill a sweep's new folder. Raises OSError."""
    config = jobs[0].config
    run_folder.reserve(folder)
    write_definition(folder, jobs, argv)
    info = run_folder.RunInfo(title(jobs), config.tracking.experiment, uri, kind="sweep")
    documents.write_json(folder / run_folder.RUN, info)
    ownership.sign(folder, [job.config for job in jobs])
    log = Journal(folder / run_folder.JOURNAL)
    study = {"study": config.study.name} if config.study.name else {}
    log.tags({**study, "sweep": folder.name, NOTE_TAG: note(argv)})
    log.params({"num_jobs": len(jobs)} | {key: ",".join(values) for key, values in sweep_summary.grid(jobs).items()})
    log.close()


def title(jobs: Sequence[Job]) -> str:
    """The parent run's name: the models and the values of each axis, shortened for a runs table."""
    study, differing = jobs[0].config.study.name, sweep_summary.grid(jobs)
    models = differing.pop("model", [jobs[0].config.model.name])
    start = f"{study} study {','.join(models)}" if study else f"{','.join(models)} sweep"
    return shortened(" ".join([start, *(f"{key}={','.join(values)}" for key, values in differing.items())]), MAX_TITLE)


def name_jobs(jobs: Sequence[Job]) -> None:
    """Put the settings that differ between jobs into the jobs' names, up to MAX_VARIED characters."""
    for job, varied in zip(jobs, sweep_summary.varied(jobs), strict=True):
        job.varied = re.sub(r"[^\w.,=+-]", "_", varied, flags=re.ASCII)[:MAX_VARIED]  # names of folders: <= 255 bytes


def write_definition(folder: Path, jobs: Sequence[Job], argv: Sequence[str]) -> None:
    name_jobs(jobs)
    rows = [{"overrides": job.overrides, "config": dataclasses.asdict(job.config)} for job in jobs]
    documents.write_json(folder / DEFINITION, {"argv": list(argv), "jobs": rows})
    sweep_view.write(folder, [job.config for job in jobs], [job.name for job in jobs], list(sweep_summary.grid(jobs)))


def definition(folder: Path) -> dict[str, Any]:
    """The content of sweep.json: `argv`, and `jobs`, each with `config` and `overrides`. Raises OSError, ValueError."""
    path = folder / DEFINITION
    content = documents.read_json(path)
    whole = isinstance(content, dict) and all(isinstance(content.get(key), list) for key in ("argv", "jobs"))
    if whole and all(isinstance(job, dict) and {"config", "overrides"} <= job.keys() for job in content["jobs"]):
        return dict(content)
    raise ValueError(f"{path}: is not the definition of a sweep. Next: move its folder away, or put a copy in place")


def search_path(folder: Path | None) -> list[str]:
    """The --config-dir of the command line that began the sweep, as an override of Hydra; empty without one."""
    if folder is None:
        return []
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--config-dir", "-cd")
    begun, _ = parser.parse_known_args(definition(folder)["argv"])
    return [f"hydra.searchpath=[file://{Path(begun.config_dir).absolute()}]"] if begun.config_dir else []


def extend(folder: Path, jobs: Sequence[Job], num_before: int) -> None:
    """Add jobs to a sweep that already has the first `num_before` of them. Raises OSError."""
    configs = [job.config for job in jobs]
    ownership.sign(folder, configs, beside=configs[:num_before])
    write_definition(folder, jobs, definition(folder)["argv"])
    ownership.sign(folder, configs)


def resume(runs_dir: str, sweep_id: str, requested: Sequence[Job], multirun: bool) -> tuple[Path, list[Job]]:
    """The folder of a sweep and all its jobs, each with its newest result or its newest usable checkpoint.

    With -m, jobs of `requested` that are new to the sweep are added. Raises ConfigError for an unknown sweep.
    """
    folder = Path(runs_dir).resolve() / sweep_id
    if Path(sweep_id).name != sweep_id or not files.exists(folder / DEFINITION):
        root = Path(runs_dir).resolve()
        sweeps = files.folders(root, DEFINITION) if root.is_dir() else []
        names = f"give one of {', '.join(path.name for path in sweeps)}" if sweeps else "give another runs_dir"
        raise ConfigError(f"sweep.resume={sweep_id}: no such sweep in runs_dir={runs_dir}. Next: {names}")
    option, trust = f"sweep.resume={sweep_id}", requested[0].config.trust
    jobs = _read_to_resume(folder, option)
    ownership.check(folder, [job.config for job in jobs], option, trust)
    known = {job.config.config_hash() for job in jobs}
    added = [job for job in requested if multirun and job.config.config_hash() not in known]
    if added and jobs[0].config.search.phase:
        raise ConfigError(f"{option}: is a search, which makes its own runs. Next: leave all other words out")
    if added:
        jobs += added
        extend(folder, jobs, len(jobs) - len(added))
    name_jobs(jobs)
    elsewhere = any(word.startswith("cluster") for word in requested[0].overrides)
    alerted = any(word.startswith("alert.") for word in requested[0].overrides)
    for job in jobs:
        if not job.config.search.phase:  # A search decides for each job (search_request.py).
            job.config.sweep.jobs_at_once = requested[0].config.sweep.jobs_at_once
        job.config.detach = requested[0].config.detach
        job.config.cluster = requested[0].config.cluster if elsewhere else job.config.cluster
        job.config.alert = requested[0].config.alert if alerted else job.config.alert
    find_checkpoints(jobs, folders_by_hash(folder))
    for job in jobs:
        if job.checkpoint:  # The job continues with the configuration in its checkpoint's folder.
            ownership.check(job.checkpoint.folder, [run_folder.read_config(job.checkpoint.folder)], option, trust)
    return folder, jobs


def _read_to_resume(folder: Path, option: str) -> list[Job]:
    """All jobs of a sweep. Raises ConfigError if its definition is damaged or of another version."""
    try:
        return read(folder)
    except (OSError, ValueError, LookupError, TypeError) as error:
        why = str(error).partition(" Next: ")[0].rstrip(".")
        raise ConfigError(
            f"{option}: its {DEFINITION} cannot be read: {why}. Next: put it back, resume with the version of timetrial"
            " that made it, or begin a new sweep"
        ) from error


def read(folder: Path) -> list[Job]:
    """All jobs of a sweep, each with the folder in which it finished, or else its newest folder with a result."""
    rows = definition(folder)["jobs"]
    jobs = [Job(stored_config.from_dict(RunConfig, row["config"]), row["overrides"]) for row in rows]
    find_results(jobs, folders_by_hash(folder))
    return jobs


def find_checkpoints(jobs: Sequence[Job], folders: Mapping[str, list[Path]]) -> None:
    """Set the newest usable checkpoint of each unfinished job, from `folders_by_hash`."""
    for job in jobs:
        unfinished = [] if job.finished else folders.get(job.config.config_hash(), [])
        job.checkpoint = checkpoints.newest_of(unfinished)


def find_results(jobs: Sequence[Job], folders: Mapping[str, list[Path]]) -> None:
    """Set the folder and result of each job, and its lost folders, from `folders_by_hash`."""
    for job in jobs:
        job_folders = folders.get(job.config.config_hash(), [])
        for path in job_folders:
            try:
                result = run_folder.read_result(path)
            except (OSError, ValueError):  # an unreadable result: the job counts as not run
                continue
            if result is not None and not job.settled:  # an older folder may hold the finished run
                job.folder, job.result = path, result
        job.lost = [path for path in job_folders if path != job.folder]


def folders_by_hash(folder: Path) -> dict[str, list[Path]]:
    """The folders of a sweep's jobs by config hash, oldest first."""
    folders: dict[str, list[Path]] = {}
    jobs = files.folders(folder, run_folder.CONFIG)
    for job in sorted(jobs, key=lambda job: (job / run_folder.CONFIG).lstat().st_mtime):
        with suppress(OSError, ValueError):  # skip folders without a readable config
            folders.setdefault(run_folder.read_config(job).config_hash(), []).append(job)
    return folders


def finish(
    folder: Path, jobs: Sequence[Job], killed: Failure | None = None, answer: Mapping[str, Any] | None = None
) -> Result:
    """Write the sweep's summary and return its result: finished if every job is settled, else failed or `killed`.

    MLflow's description of the parent run begins with the words of a search's `answer`. Raises OSError.
    """
    unfinished = [sweep_summary.status(job) for job in jobs if not job.settled]
    metrics = {"num_finished": float(sum(job.finished for job in jobs))}
    if (usd := sweep_cost.spent_usd(folder)) is not None:
        metrics[sweep_summary.COST] = usd
    spent = goodput.sum_over_runs(goodput.job_parts(folder))
    metrics |= {quantities.goodput(name): round(share, 4) for name, share in goodput.shares(spent).items()}
    result = Result("finished", metrics=metrics)
    if unfinished:
        message = f"{len(unfinished)} of {counted(len(jobs), 'job')} did not finish: {', '.join(unfinished)}"
        failure = Failure("error", message)
        if killed:
            failure = dataclasses.replace(killed, message=f"{killed.message}; {message}")
        result = Result("killed" if killed else "failed", metrics=metrics, failure=failure)
    try:
        log = Journal(folder / run_folder.JOURNAL)
        time_ms = killed.time_ms if killed else None
        text = note(definition(folder)["argv"], result.failure)
        if not killed and all(job.result is not None for job in jobs):  # nobody waits for a report of a stopped sweep
            from tracking.jobs.plan import sweep_report

            text = sweep_report.write(folder, answer) + text
        text = f"{in_markdown(answer['words'])}\n\n{text}" if answer else text
        log.tags({NOTE_TAG: text}, time_ms)
        log.metrics(metrics, time_ms=time_ms)  # The parent run ends at the time of its last record.
        log.close()
        sweep_summary.write(folder, jobs)
    finally:
        run_folder.write_result(folder, result)  # succeeds on a full disk too: its space is reserved
    return result


def note(argv: Sequence[str], failure: Failure | None = None) -> str:
    """The parent run's description in MLflow: the command, and why the sweep failed."""
    command = f"`{LAUNCH} {' '.join(argv)}`"
    return f"{command}\n\n{in_markdown(failure.message)}" if failure else command


def reopen(folder: Path) -> None:
    """Remove the result of a sweep that has ended, so that it can run again. Raises OSError."""
    run_folder.reserve(folder)
    files.remove(folder / run_folder.RESULT)
