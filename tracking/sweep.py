"""A sweep is a folder too: its definition, its jobs' folders inside it, and a journal that becomes the parent run."""

from __future__ import annotations

import csv
import dataclasses
import io
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from conf import schema
from conf.schema import NOT_MEASURED, ConfigError, RunConfig
from tracking import checkpoints, dotted, run_folder, spending
from tracking.checkpoints import Checkpoint
from tracking.journal import Journal
from tracking.mlflow_run import NOTE_TAG
from tracking.run_folder import Failure, Result, RunInfo
from tracking.statistics import mean_and_standard_error

DEFINITION = "sweep.json"
COLUMNS = {  # of the summary: MLflow key, heading, format
    "time/to_accuracy_sec": ("time to accuracy (s)", "{:.2f}"),
    "time/to_accuracy_train_sec": ("without evaluation (s)", "{:.2f}"),
    "epochs/to_accuracy": ("epochs", "{:.3g}"),
    "throughput/samples_per_sec": ("samples/s", "{:,.0f}"),
    "world_size": ("world size", "{:.0f}"),
}


@dataclass
class Job:
    """One job of a sweep: what it runs, and its newest folder and result, if there are any.

    With a `checkpoint`, it goes on in the folder of that, rather than from the start in a new one.
    """

    config: RunConfig
    overrides: list[str]
    folder: Path | None = None
    result: Result | None = None
    checkpoint: Checkpoint | None = None

    @property
    def finished(self) -> bool:
        return self.result is not None and self.result.status == "finished"


def create(jobs: Sequence[Job], argv: Sequence[str], uri: str) -> Path:
    """Make a sweep's folder. Raises ConfigError where it cannot be made, or two jobs would measure the same."""
    hashes = [job.config.config_hash() for job in jobs]
    twice = next((job for job in jobs if hashes.count(job.config.config_hash()) > 1), None)
    if twice is not None:
        raise ConfigError(f"{' '.join(twice.overrides)}: twice in this sweep; give repeats other seeds: seed=1,2,3")
    config = jobs[0].config
    sweep_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{config.model.name}-{secrets.token_hex(2)}"
    try:
        folder = run_folder.create(Path(config.runs_dir), sweep_id)
        run_folder.reserve(folder)
        write_definition(folder, jobs, argv)
        info = RunInfo(f"sweep {folder.name}", config.tracking.experiment, uri, kind="sweep")
        run_folder.write_json(folder / run_folder.RUN, info)
        log = Journal(folder / run_folder.JOURNAL)
        study = {"study": config.study.name} if config.study.name else {}
        log.tags({**study, "sweep": folder.name, NOTE_TAG: note(argv)})
        log.params({"num_jobs": len(jobs)} | {key: ",".join(values) for key, values in grid(jobs).items()})
        log.close()
    except OSError as error:
        raise ConfigError(f"runs_dir={config.runs_dir}: {error}; give a folder that you can write to") from error
    return folder


def write_definition(folder: Path, jobs: Sequence[Job], argv: Sequence[str]) -> None:
    definition = [{"overrides": job.overrides, "config": dataclasses.asdict(job.config)} for job in jobs]
    run_folder.write_json(folder / DEFINITION, {"argv": list(argv), "jobs": definition})


def resume(runs_dir: str, sweep_id: str, asked: Sequence[Job], multirun: bool) -> tuple[Path, list[Job]]:
    """The folder of a sweep and all its jobs, each with its newest result or the checkpoint that it can go on from.

    With -m, the jobs `asked` for that the sweep has not got are added to it; without, only where it is recorded can
    be given. Raises ConfigError for that and for an unknown sweep.
    """
    changed = [one for one in asked[0].overrides if one.split("=")[0].split(".")[0] not in NOT_MEASURED]
    if changed and not multirun:
        raise ConfigError(
            f"sweep.resume={sweep_id} {' '.join(changed)}: the sweep's jobs are resumed as they were; leave"
            f" {changed[0].split('=')[0]} out, or add jobs to the sweep with -m"
        )
    folder = Path(runs_dir).resolve() / sweep_id
    if not (folder / DEFINITION).exists():
        there = ", ".join(sorted(path.parent.name for path in Path(runs_dir).glob(f"*/{DEFINITION}"))) or "none"
        raise ConfigError(f"sweep.resume={sweep_id}: no such sweep in runs_dir={runs_dir}; there are: {there}")
    jobs = read(folder)
    known = {job.config.config_hash() for job in jobs}
    added = [job for job in asked if multirun and job.config.config_hash() not in known]
    if added:
        jobs += added
        write_definition(folder, jobs, run_folder.read_json(folder / DEFINITION)["argv"])
    folders = folders_by_hash(folder)
    for job in jobs:
        if not job.finished:
            job.checkpoint = checkpoints.newest_of(folders.get(job.config.config_hash(), []))
    return folder, jobs


def read(folder: Path) -> list[Job]:
    """All jobs of a sweep, each with the folder in which it finished, or its newest that has a result."""
    definition = run_folder.read_json(folder / DEFINITION)
    jobs = [Job(schema.from_dict(RunConfig, row["config"]), row["overrides"]) for row in definition["jobs"]]
    folders = folders_by_hash(folder)
    for job in jobs:
        for one in folders.get(job.config.config_hash(), []):
            result = run_folder.read_result(one)
            if result is not None and not job.finished:  # it may have finished in an older folder than its newest
                job.folder, job.result = one, result
    return jobs


def folders_by_hash(folder: Path) -> dict[str, list[Path]]:
    """The folders of a sweep's jobs by what they measure, oldest first."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob(f"*/{run_folder.CONFIG}"), key=lambda path: path.stat().st_mtime):
        found.setdefault(schema.load(path).config_hash(), []).append(path.parent)
    return found


def grid(jobs: Sequence[Job]) -> dict[str, list[str]]:
    """The keys in which the jobs differ, with their values in order of appearance; a group (model, ...) by name."""
    found: dict[str, dict[str, None]] = {}
    for job in jobs:
        for key, value in flat(job.config).items():
            found.setdefault(key, {})[value] = None
    names = {key.partition(".")[0] for key, values in found.items() if key.endswith(".name") and len(values) > 1}
    return {
        key.removesuffix(".name"): list(values)
        for key, values in found.items()
        if len(values) > 1 and (key.endswith(".name") or key.partition(".")[0] not in names)
    }


def flat(config: RunConfig) -> dict[str, str]:
    """Every value of a config that decides what is measured, by its dotted key."""
    content = dataclasses.asdict(config)
    for key in NOT_MEASURED:
        del content[key]
    return dotted.words(content)


def summary(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """A row a job, then, where a setting was repeated with other seeds, a row a setting with mean and standard error.

    Failed jobs are listed with their cause and averaged nowhere. Values are (mean, standard error or None).
    """
    keys = list(grid(jobs))
    settings: dict[tuple[str, ...], list[Job]] = {}
    rows = []
    for job in jobs:
        labels = {key: flat(job.config).get(f"{key}.name", flat(job.config).get(key, "")) for key in keys}
        settings.setdefault(tuple(value for key, value in labels.items() if key != "seed"), []).append(job)
        metrics = job.result.metrics if job.result else {}
        values = {key: (metrics[key], None) for key in COLUMNS if key in metrics}
        rows.append({"labels": labels, "n": "", "status": status(job), "values": values})
    if "seed" in keys and len(jobs) > len(settings):
        for setting, members in settings.items():
            values_of = iter(setting)
            labels = {key: "all" if key == "seed" else next(values_of) for key in keys}  # in order of the columns
            rows.append({"labels": labels, **pooled(members)})
    return rows


def pooled(members: Sequence[Job]) -> dict[str, Any]:
    good = [job.result.metrics for job in members if job.result is not None and job.finished]
    reached = sum(metrics.get("target_reached") == 1.0 for metrics in good)
    values = {
        key: mean_and_standard_error([metrics[key] for metrics in good if key in metrics])
        for key in COLUMNS
        if any(key in metrics for metrics in good)
    }
    n = f"{len(good)} of {len(members)}"
    resumed = sum(bool(job.result and job.result.resumes) for job in members if job.finished)
    note = f", {resumed} resumed" if resumed else ""
    return {"n": n, "status": f"{reached} reached the target{note}", "values": values}


def status(job: Job) -> str:
    if job.result is None:
        return "not run"
    if job.result.failure is not None:
        return f"{job.result.status}: {job.result.failure.kind}"
    missed = bool(job.result.targets) and not job.result.metrics["target_reached"]
    return ("target missed" if missed else "finished") + (", resumed" if job.result.resumes else "")


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the summary as text."""
    shown = []
    for key, (_, pattern) in COLUMNS.items():
        mean, error = row["values"].get(key, (None, None))
        text = "" if mean is None else pattern.format(mean)
        shown.append(text if error is None else f"{text} ± {pattern.format(error)}")
    return [*row["labels"].values(), row["n"], row["status"], *shown]


def headings(jobs: Sequence[Job]) -> list[str]:
    return [*grid(jobs), "n", "status", *(heading for heading, _ in COLUMNS.values())]


def table(name: str, jobs: Sequence[Job]) -> Table:
    """All jobs of a sweep, and the mean ± standard error of repeated settings."""
    drawn = Table(title=f"sweep {name}", title_justify="left", caption="±: standard error of the mean over seeds")
    for heading in headings(jobs):
        drawn.add_column(heading)
    for row in summary(jobs):
        drawn.add_row(*cells(row), style="bold" if row["n"] else "")
    return drawn


def finish(folder: Path, jobs: Sequence[Job], killed: Failure | None = None) -> Result:
    """Write the sweep's summary and result: finished when every job is, else failed, or `killed`. Raises OSError."""
    bad = [status(job) for job in jobs if not job.finished]
    metrics = {"num_finished": float(len(jobs) - len(bad))}
    if (usd := spending.spent_usd(folder)) is not None:
        metrics["cost/sweep_usd"] = usd
    result = Result("finished", metrics=metrics)
    if bad:
        words = f"{len(bad)} of {len(jobs)} jobs did not finish: {', '.join(bad)}"
        failure = Failure("error", words)
        if killed:
            failure = dataclasses.replace(killed, message=f"{killed.message}; {words}")
        result = Result("killed" if killed else "failed", metrics=metrics, failure=failure)
    try:
        log = Journal(folder / run_folder.JOURNAL)
        time_ms = killed.time_ms if killed else None
        text = note(run_folder.read_json(folder / DEFINITION)["argv"], result.failure)
        if not killed and all(job.result is not None for job in jobs):  # not stopped: nobody waits for the end of it
            from tracking import sweep_report

            text = sweep_report.write(folder, text, jobs[0].config.study)
        log.tags({NOTE_TAG: text}, time_ms)
        log.metrics(metrics, time_ms=time_ms)  # as the last record, it ends the parent run
        log.close()
        write_summary(folder, jobs)
    finally:
        run_folder.write_result(folder, result)  # there is room for it on a full disk too
    return result


def note(argv: Sequence[str], failure: Failure | None = None) -> str:
    """What MLflow shows as the parent run's description."""
    command = f"`launch.py {' '.join(argv)}`"
    return f"{command}\n\n{failure.message}" if failure else command


def write_summary(folder: Path, jobs: Sequence[Job]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([headings(jobs), *map(cells, summary(jobs))])
    run_folder.write_text(folder / "summary.csv", text.getvalue())
    rows = [headings(jobs), ["---"] * len(headings(jobs)), *map(cells, summary(jobs))]
    run_folder.write_text(folder / "summary.md", "".join(f"| {' | '.join(row)} |\n" for row in rows))


def reopen(folder: Path) -> None:
    """Take a sweep up again that has ended: its result and summary are to come. Raises OSError."""
    run_folder.reserve(folder)
    (folder / run_folder.RESULT).unlink(missing_ok=True)
