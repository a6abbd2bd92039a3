"""A sweep is a folder too: its definition, its jobs' folders inside it, and a journal that becomes the parent run."""

from __future__ import annotations

import dataclasses
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from conf.schema import NOT_MEASURED, ConfigError, RunConfig
from tracking.analysis.statistics import counted
from tracking.base import quantities
from tracking.base.installation import LAUNCH
from tracking.base.safe_text import in_markdown
from tracking.jobs.plan import run_setup, sweep_cost, sweep_summary, sweep_view
from tracking.jobs.plan.job import Job
from tracking.jobs.trust import ownership
from tracking.measure.bottleneck import goodput
from tracking.record import NOTE_TAG, Failure, Journal, Result, checkpoints, documents, files, run_folder, run_lock
from tracking.request import stored_config
from tracking.store.mirror import shortened

DEFINITION = "sweep.json"
MAX_TITLE = 120  # characters
MAX_VARIED = 60  # characters


def create(jobs: Sequence[Job], argv: Sequence[str], uri: str) -> run_lock.Owner:
    """Make a sweep's folder, which this process owns from then on.

    Raises ConfigError where it cannot be made, or two jobs would measure the same.
    """
    hashes = [job.config.config_hash() for job in jobs]
    twice = next((job for job in jobs if hashes.count(job.config.config_hash()) > 1), None)
    if twice is not None:
        raise ConfigError(f"{' '.join(twice.overrides)}: twice in this sweep; give repeats other seeds: seed=1,2,3")
    config = jobs[0].config
    sweep_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{config.model.name}-{secrets.token_hex(2)}"
    try:
        owner = run_lock.make(Path(config.runs_dir), sweep_id)
        with run_setup.removed_unless_whole(owner):
            prepare(owner.folder, jobs, argv, uri)
    except OSError as error:
        raise ConfigError(f"runs_dir={config.runs_dir}: {error}; give a folder that you can write to") from error
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
    """The parent run's name: what is swept, by which a runs table of narrow columns can be read too."""
    study, differing = jobs[0].config.study.name, sweep_summary.grid(jobs)
    models = differing.pop("model", [jobs[0].config.model.name])
    start = f"{study} study {','.join(models)}" if study else f"{','.join(models)} sweep"
    return shortened(" ".join([start, *(f"{key}={','.join(values)}" for key, values in differing.items())]), MAX_TITLE)


def name_jobs(jobs: Sequence[Job]) -> None:
    """Have the names of a sweep's jobs tell in what they differ, as far as there is room for it."""
    for job, varied in zip(jobs, sweep_summary.varied(jobs), strict=True):
        job.varied = re.sub(r"[^\w.,=+-]", "_", varied, flags=re.ASCII)[:MAX_VARIED]  # a folder's name, of 255 bytes


def write_definition(folder: Path, jobs: Sequence[Job], argv: Sequence[str]) -> None:
    name_jobs(jobs)
    definition = [{"overrides": job.overrides, "config": dataclasses.asdict(job.config)} for job in jobs]
    documents.write_json(folder / DEFINITION, {"argv": list(argv), "jobs": definition})
    sweep_view.write(folder, [job.config for job in jobs], [job.name for job in jobs], list(sweep_summary.grid(jobs)))


def extend(folder: Path, jobs: Sequence[Job], num_before: int) -> None:
    """Add jobs to a sweep, which has the first `num_before` of them. Raises OSError."""
    configs = [job.config for job in jobs]
    ownership.sign(folder, configs, beside=configs[:num_before])
    write_definition(folder, jobs, documents.read_json(folder / DEFINITION)["argv"])
    ownership.sign(folder, configs)


def resume(runs_dir: str, sweep_id: str, asked: Sequence[Job], multirun: bool) -> tuple[Path, list[Job]]:
    """The folder of a sweep and all its jobs, each with its newest result or the checkpoint that it can go on from.

    With -m, the jobs `asked` for that the sweep has not got are added to it; without, only where it is recorded can
    be given. Raises ConfigError for that and for an unknown sweep.
    """
    kept = set(NOT_MEASURED) - {"profile"}  # Where a run is recorded may be given anew.
    changed = [word for word in asked[0].overrides if word.split("=")[0].split(".")[0] not in kept]
    if changed and not multirun:
        raise ConfigError(
            f"sweep.resume={sweep_id} {' '.join(changed)}: the sweep's jobs are resumed as they were; leave"
            f" {changed[0].split('=')[0]} out, or add jobs to the sweep with -m"
        )
    folder = Path(runs_dir).resolve() / sweep_id
    if Path(sweep_id).name != sweep_id or not files.exists(folder / DEFINITION):
        root = Path(runs_dir).resolve()
        sweeps = files.folders(root, DEFINITION) if root.is_dir() else []
        there = ", ".join(path.name for path in sweeps) or "none"
        raise ConfigError(f"sweep.resume={sweep_id}: no such sweep in runs_dir={runs_dir}; there are: {there}")
    jobs = read(folder)
    given, trust = f"sweep.resume={sweep_id}", asked[0].config.trust
    ownership.check(folder, [job.config for job in jobs], given, trust)
    known = {job.config.config_hash() for job in jobs}
    added = [job for job in asked if multirun and job.config.config_hash() not in known]
    if added and jobs[0].config.search.phase:
        raise ConfigError(f"sweep.resume={sweep_id}: is a search, which makes its own runs; leave -m and all else out")
    if added:
        jobs += added
        extend(folder, jobs, len(jobs) - len(added))
    name_jobs(jobs)
    elsewhere = any(word.startswith("cluster") for word in asked[0].overrides)
    alerted = any(word.startswith("alert.") for word in asked[0].overrides)
    at_once = any(word.startswith("sweep.jobs_at_once=") for word in asked[0].overrides)
    for job in jobs:
        if at_once or not job.config.search.phase:  # A search goes on as it began.
            job.config.sweep.jobs_at_once = asked[0].config.sweep.jobs_at_once
        job.config.detach = asked[0].config.detach
        job.config.cluster = asked[0].config.cluster if elsewhere else job.config.cluster
        job.config.alert = asked[0].config.alert if alerted else job.config.alert
    find_checkpoints(jobs, folders_by_hash(folder))
    for job in jobs:
        if job.checkpoint:  # It goes on by the configuration that lies there.
            ownership.check(job.checkpoint.folder, [run_folder.read_config(job.checkpoint.folder)], given, trust)
    return folder, jobs


def read(folder: Path) -> list[Job]:
    """All jobs of a sweep, each with the folder in which it finished, or its newest that has a result."""
    definition = documents.read_json(folder / DEFINITION)
    jobs = [Job(stored_config.from_dict(RunConfig, row["config"]), row["overrides"]) for row in definition["jobs"]]
    find_results(jobs, folders_by_hash(folder))
    return jobs


def find_checkpoints(jobs: Sequence[Job], folders: Mapping[str, list[Path]]) -> None:
    """Tell the jobs that have not finished what they can go on from, of `folders_by_hash`."""
    for job in jobs:
        unfinished = [] if job.finished else folders.get(job.config.config_hash(), [])
        job.checkpoint = checkpoints.newest_of(unfinished)


def find_results(jobs: Sequence[Job], folders: Mapping[str, list[Path]]) -> None:
    """Tell the jobs where they finished, or what their newest result is, of `folders_by_hash`."""
    for job in jobs:
        own = folders.get(job.config.config_hash(), [])
        for path in own:
            try:
                result = run_folder.read_result(path)
            except (OSError, ValueError):  # it cannot be said how it ended: the job counts as not run
                continue
            if result is not None and not job.finished:  # it may have finished in an older folder than its newest
                job.folder, job.result = path, result
        job.lost = [path for path in own if path != job.folder]


def folders_by_hash(folder: Path) -> dict[str, list[Path]]:
    """The folders of a sweep's jobs by what they measure, oldest first."""
    folders: dict[str, list[Path]] = {}
    jobs = files.folders(folder, run_folder.CONFIG)
    for job in sorted(jobs, key=lambda job: (job / run_folder.CONFIG).lstat().st_mtime):
        with suppress(OSError, ValueError):  # a folder that says nothing of what it measures is of no job
            folders.setdefault(run_folder.read_config(job).config_hash(), []).append(job)
    return folders


def finish(folder: Path, jobs: Sequence[Job], killed: Failure | None = None, answer: str = "") -> Result:
    """Write the sweep's summary and result: finished when every job is settled, else failed or `killed`.

    The `answer` of a search comes first in what MLflow shows of it. Raises OSError.
    """
    unfinished = [sweep_summary.status(job) for job in jobs if not job.settled]
    metrics = {"num_finished": float(len(jobs) - len(unfinished))}
    if (usd := sweep_cost.spent_usd(folder)) is not None:
        metrics[sweep_summary.COST] = usd
    spent = goodput.together(goodput.job_parts(folder))
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
        text = note(documents.read_json(folder / DEFINITION)["argv"], result.failure)
        if not killed and all(job.result is not None for job in jobs):  # not stopped: nobody waits for the end of it
            from tracking.jobs.plan import sweep_report

            text = sweep_report.write(folder, answer) + text
        text = f"{in_markdown(answer)}\n\n{text}" if answer else text
        log.tags({NOTE_TAG: text}, time_ms)
        log.metrics(metrics, time_ms=time_ms)  # The time of the last record ends the parent run.
        log.close()
        sweep_summary.write(folder, jobs)
    finally:
        run_folder.write_result(folder, result)  # there is room for it on a full disk too
    return result


def note(argv: Sequence[str], failure: Failure | None = None) -> str:
    """What MLflow shows as the parent run's description."""
    command = f"`{LAUNCH} {' '.join(argv)}`"
    return f"{command}\n\n{in_markdown(failure.message)}" if failure else command


def reopen(folder: Path) -> None:
    """Take a sweep up again that has ended: its result and summary are to come. Raises OSError."""
    run_folder.reserve(folder)
    files.remove(folder / run_folder.RESULT)
