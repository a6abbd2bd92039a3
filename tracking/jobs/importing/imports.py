"""Imports a log's file as a run folder, once: its digest identifies an imported file."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from conf.dataset_options import DatasetConfig
from conf.schema import PROGRAM, ModelConfig, PrecisionConfig, RunConfig, StackConfig
from conf.target import Target, text
from tracking.analysis import mlperf
from tracking.base import quantities
from tracking.jobs.importing.published_log import PublishedLog, read
from tracking.jobs.plan import run_setup
from tracking.measure.programs import NO_STOP, SUCCESS, program_tags
from tracking.measure.training import clock, summary, throughput
from tracking.record import Journal, Record, documents, journal, run_folder, run_lock

MOST_BYTES = 268_435_456  # largest size of a log
DIGEST_CHARS = 12  # the part of the digest in a folder's name
NOT_IN_NAMES = re.compile(r"[^\w.-]+", re.ASCII)
UNKNOWN = "unknown"  # the precision of a run whose log does not say it


@dataclass(frozen=True)
class LogOptions:
    """Facts that the log may lack (devices, precision, target, name), and where the run goes."""

    runs_dir: Path
    uri: str
    gpus: int | None = None
    precision: str = UNKNOWN
    target: Target | None = None
    name: str | None = None
    experiment: str = "timetrial"


@dataclass(frozen=True)
class Imported:
    """A run made from a file: now if `new`, else earlier.

    `note` is a remark on the run; `not_understood` lists lines of the log that enter no figure.
    """

    file: Path
    folder: Path
    new: bool
    note: str = ""
    not_understood: str = ""


def import_log(path: Path, options: LogOptions) -> Imported:
    """Import a file, or find its earlier run. Raises OSError, and ValueError that names the file and what to do."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(
            f"{path}: has more than {MOST_BYTES} bytes. Next: keep the lines of MLPerf's log: grep :::ML LOG > SHORT"
        )
    digest = hashlib.sha256(content).hexdigest()
    for folder in sorted(options.runs_dir.glob(f"*{digest[:DIGEST_CHARS]}*")):
        if run_folder.read_result(folder) is not None:
            return Imported(path, folder, False)
    try:
        log = read(content, options.target)
    except ValueError as error:
        raise ValueError(
            f"{path}: {error}. Next: give the log of a whole run, such as result_0.txt of a submission"
        ) from None
    size = log.account.world_size or options.gpus
    if size is None:
        raise ValueError(f"{path}: does not say its number of devices. Next: give --gpus N")
    return _write(path, log, digest, size, options)


def _write(path: Path, log: PublishedLog, digest: str, size: int, options: LogOptions) -> Imported:
    config = _config(log, size, options)
    name = (
        options.name
        or f"{log.account.submission.facts.get('submission_org', 'imported')}-{log.benchmark.model}-{size}gpu"
    )
    name = f"{NOT_IN_NAMES.sub('_', name).lstrip('.')[:80]}-{digest[:DIGEST_CHARS]}"
    with run_lock.make(options.runs_dir, name) as owner:
        run_setup.prepare(owner.folder, name, config, [], options.uri, values=_params(config, log))
        return _fill(owner.folder, config, path, log, digest, size)


def _fill(folder: Path, config: RunConfig, path: Path, log: PublishedLog, digest: str, size: int) -> Imported:
    """Write the log's records and figures into a folder that has its config."""
    documents.write_text(folder / mlperf.LOG, "".join(f"{line}\n" for line in _lines(path)))
    out = Journal(folder / run_folder.JOURNAL)
    for record in log.records:
        out.append(record)
    note = _note(log)
    tags = _tags(path, log, digest) | ({"import.note": note} if note else {})
    out.tags(tags)
    windows = throughput.program_windows(log.records)
    measured = throughput.summarize(windows, size) | {quantities.WORLD_SIZE: float(size)}
    unknown = () if clock.first(log.records, "eval_start") else (quantities.TIME_TO_ACCURACY_TRAIN_SEC,)
    summary.write(config, folder, out, windows, measured, "samples", unknown)
    out.close()
    return Imported(path, folder, True, note, tags.get("program.not_understood", ""))


def _config(log: PublishedLog, size: int, options: LogOptions) -> RunConfig:
    benchmark = log.benchmark
    model = ModelConfig(benchmark.model, PROGRAM, 1, targets={benchmark.dataset: dict(log.targets)})
    config = RunConfig(
        model=model,
        dataset=DatasetConfig(benchmark.dataset),
        precision=PrecisionConfig(options.precision, options.precision),
        stack=StackConfig("imported"),
        gpus=size,
        seed=log.seed or 0,
        runs_dir=str(options.runs_dir),
    )
    config.tracking.experiment = options.experiment
    return config


def _params(config: RunConfig, log: PublishedLog) -> dict[str, journal.Scalar]:
    """The parameters that the log or the user gives."""
    unknown = {"nodes", "batch_size"}
    unknown |= {"precision"} if config.precision.name == UNKNOWN else set()
    unknown |= {"seed"} if log.seed is None else set()
    known = {key: value for key, value in run_setup.params(config).items() if key not in unknown}
    return known | {"program": "imported"} | dict(log.account.params)


def _tags(path: Path, log: PublishedLog, digest: str) -> dict[str, str]:
    tags = {"import.file": path.name, "import.sha256": digest, "program.benchmark": log.name}
    tags |= program_tags(log.account, log.unread)
    return tags | ({"program.status": log.status} if log.status != SUCCESS else {})


def _note(log: PublishedLog) -> str:
    """A remark if the log has no verdict or target, or if verdict and evaluations disagree; else empty."""
    if log.status == NO_STOP:
        return "the log has no run_stop: by MLPerf's rules its run missed"
    events: list[Record] = [record for record in log.records if record.kind == "event"]
    reached = clock.summarize(events, log.targets).get(quantities.TARGET_REACHED)
    succeeded = log.status == SUCCESS
    if reached is None:
        return "its target is not known. Next: give --target"
    if bool(reached) == succeeded:
        return ""
    targets = ", ".join(f"{name} {text(value)}" for name, value in log.targets.items())
    return f"the log says {log.status}, and its evaluations {'reach' if reached else 'miss'} {targets}"


def _lines(path: Path) -> list[str]:
    """The lines of MLPerf's log, each from its mark on; `python -m tracking mlperf` computes the score from them."""
    texts = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line[line.index(":::ML") :] for line in texts if ":::ML" in line]
