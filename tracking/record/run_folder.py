"""A run is a folder. This module names its files, and reads and writes those that say what the run is and became."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conf import schema
from conf.target import Target
from tracking.record import documents, exported_model, files
from tracking.record.typed_json import checked
from tracking.request import stored_config

CONFIG = "config.yaml"  # the whole composed config; its presence makes a folder a run folder
OVERRIDES = "overrides.yaml"
RUN = "run.json"  # identity: name, experiment, tracking URI, parent
JOURNAL = "journal.jsonl"
FINGERPRINT = "fingerprint.json"
REQUIREMENTS = "requirements.txt"
WORKER_LOG = "worker.log"
RESULT = "result.json"
FAILURE = "failure.rank{rank}.json"  # a file for each failed rank; the launcher folds the first into the result
# Of a rank that failed, or of a node but the first (see nodes.own).
OF_RANK_OR_NODE = re.compile(r"failure\.rank\d+\.json|(failure\.ranks|fingerprint|worker)-[\w-]+\.(json|log)", re.ASCII)
VIEW = "view.json"  # how MLflow's UI shows a sweep (see sweep_view); never an artifact
MIRROR = "mirror.json"  # how far MLflow has the folder; never an artifact
MODEL = "model.pt"  # the trained weights, where save_model asks for them; an artifact where it is to be one
CHECKPOINTS = "checkpoints"  # a folder; never an artifact
STOPPING = ".stopping"  # is there while a run that is told to stop has time to save a checkpoint, and to end by itself
RUN_LOCK = ".owner"  # says who runs the folder; locked while somebody does (see run_lock)
PLAIN_CONFIG = ".config.json"  # the config once more, for the worker of a program, whose image may have no PyYAML
GIT = ".git.json"  # holds the code's commit and changes, for a worker whose image may have no git to tell them
RESERVE = ".result.reserve"  # room for result.json where the disk is full; gone when there is a result
RESERVE_BYTES = 65536
STATUSES = ("finished", "failed", "killed")
KINDS = ("run", "sweep")
PARENT = ".."  # a sweep's jobs lie in its folder
UID = re.compile(r"[\w-]{1,64}", re.ASCII)  # it stands in searches of MLflow


def is_full(error: Exception) -> bool:
    """Whether a write failed for want of room: a full disk, a used-up quota or a limit of files (ulimit -f)."""
    number = error.errno if isinstance(error, OSError) else None
    # Libraries that write for themselves put the words into an exception of their own.
    return number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or os.strerror(errno.ENOSPC) in str(error)


def lacks_room(folder: Path) -> bool:
    """Whether the disk of a run has less room than a result takes."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < RESERVE_BYTES


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class RunInfo:
    """The identity of a run or, where `kind` is "sweep", of the parent run of a sweep."""

    name: str
    experiment: str
    tracking_uri: str  # without credentials
    kind: str = "run"
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)  # The MLflow run is found by it after a lost answer.
    parent: str | None = None  # ".." in a sweep's job, whose folder lies in that of the sweep
    created_ms: int = field(default_factory=now_ms)


@dataclass
class Failure:
    kind: str  # oom | nan | signal:N | timeout | bad_input | disk_full | error
    message: str
    traceback: str = ""
    rank: int = 0
    time_ms: int = field(default_factory=now_ms)


@dataclass
class Result:
    """The outcome of a run, whichever it was.

    `metrics` are the summary values by MLflow key; `windows` describe the steady-state throughput: num_windows,
    median, and the quartiles in samples/s; `evaluations` list step, epoch, clock_sec and metrics of each evaluation.
    """

    status: str  # finished | failed | killed
    metrics: dict[str, float] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    # By metric, which way is better (conf.metric), where a target or a declaration says it.
    directions: dict[str, str] = field(default_factory=dict)
    windows: dict[str, float] = field(default_factory=dict)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    unit: str = "samples"  # what a sample is
    # For each time that the run was resumed: epoch_num (after which it went on), from_step, checkpoint, after (the kind
    # of failure that had ended it), time_ms.
    resumes: list[dict[str, Any]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)  # tags of the environment that differed between the attempts
    failure: Failure | None = None
    # Of several machines, slowest first: node, step_ms (mean of a step), data_wait_fraction (of its slowest rank).
    nodes: list[dict[str, Any]] = field(default_factory=list)
    neighbours: str = ""  # other processes that took cores or GPUs from the run; empty for none, or none that was seen
    # What limited the run: cause, words, shares (of its time, by cause), evidence and missing
    # (tracking.measure.bottleneck).
    bottleneck: dict[str, Any] = field(default_factory=dict)
    # Where the time from submission to the end went: seconds, shares, and start (seconds by its parts).
    goodput: dict[str, Any] = field(default_factory=dict)
    # By what a start is compared with another run's (tracking.measure.training.summary.start_facts).
    start: dict[str, Any] = field(default_factory=dict)


def create(root: Path, name: str) -> Path:
    """Make a new folder `root/name`, with a number behind the name where it is taken.

    Raises OSError where the folder cannot be made or written to.
    """
    root.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, 1000):
        path = root / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            path.mkdir(mode=0o700)  # a log can quote anything the user's code prints: private by default
        except FileExistsError:
            continue
        return path.resolve()
    raise FileExistsError(f"{root / name}: a thousand runs of this name already")


def keep_attempt(folder: Path, number: int) -> None:
    """Put a number into the names of the files that an attempt left, so that the next one cannot overwrite them."""
    names = {RESULT, WORKER_LOG, FINGERPRINT, REQUIREMENTS}
    for name in files.names(folder):
        if name in names or OF_RANK_OR_NODE.fullmatch(name):
            files.replace(folder / name, name.replace(".", f".{number}.", 1))


def earlier_attempts(folder: Path, name: str) -> list[Path]:
    """The files of this name that earlier attempts left, in their order."""
    pattern = re.escape(name).replace(r"\.", r"\.(\d{1,9})\.", 1)
    matches = [match for match in (re.fullmatch(pattern, other) for other in files.names(folder)) if match]
    return [folder / match[0] for match in sorted(matches, key=lambda match: int(match[1]))]


def reserve(folder: Path) -> None:
    """Keep room on the disk for a result. Raises OSError where there is none."""
    with files.opened(folder / RESERVE, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)


def write_result(folder: Path, result: Result) -> None:
    """Write result.json, also on a full disk where there is a reserve. Raises OSError."""
    path, reserved = folder / RESULT, folder / RESERVE
    try:
        documents.write_json(path, result)
    except OSError as error:
        text = documents.to_json(result).encode()
        if not is_full(error) or not files.exists(reserved) or len(text) > RESERVE_BYTES:
            raise
        with files.opened(reserved, "r+b") as file:  # writes into blocks that the file has already
            file.write(text)
            file.truncate()
            os.fsync(file.fileno())
        files.replace(reserved, path.name)
    files.remove(reserved)


def read_info(folder: Path) -> RunInfo:
    """Who the run is. Raises OSError where the file cannot be read, ValueError where it holds something else."""
    path = folder / RUN
    info = checked(RunInfo, documents.read_json(path), path)
    if info.parent not in (None, PARENT):  # any other could lead out of the folder, or round in a circle
        raise ValueError(f"{path}: parent is {info.parent!r}; allowed: null, and {PARENT!r} for the sweep it lies in")
    if info.kind not in KINDS:
        raise ValueError(f"{path}: kind is {info.kind!r}; allowed: {', '.join(KINDS)}")
    if not UID.fullmatch(info.uid):
        raise ValueError(f"{path}: uid is {info.uid!r}; allowed: up to 64 letters, digits, '_' and '-'")
    return info


def read_result(folder: Path) -> Result | None:
    """The result of a run, or None while there is none. Raises OSError, and ValueError for what is no result."""
    path = folder / RESULT
    try:
        result = checked(Result, documents.read_json(path), path)
    except FileNotFoundError:
        return None
    if result.status not in STATUSES:
        raise ValueError(f"{path}: status is {result.status!r}; allowed: {', '.join(STATUSES)}")
    return result


def read_config(folder: Path) -> schema.RunConfig:
    """The configuration of a run. Raises OSError, and ConfigError for what is none."""
    path = folder / CONFIG
    return stored_config.parse(files.read_text(path), str(path))


def write_config(folder: Path, config: schema.RunConfig) -> None:
    with documents.replacing(folder / CONFIG) as file:
        file.write(stored_config.to_text(config).encode())


def write_plain_config(folder: Path, config: schema.RunConfig) -> None:
    with documents.replacing(folder / PLAIN_CONFIG) as file:
        file.write(json.dumps(dataclasses.asdict(config)).encode())


def read_plain_config(folder: Path) -> schema.RunConfig:
    """The config as `read_config` has it, from a file that needs no PyYAML where there is one."""
    path = folder / PLAIN_CONFIG
    if not files.exists(path):
        return read_config(folder)
    return stored_config.from_dict(schema.RunConfig, documents.read_json(path))


def parent_of(folder: Path) -> Path | None:
    """The folder of the sweep that a run belongs to; None for a run of its own."""
    parent = read_info(folder).parent
    return (folder / parent).resolve() if parent else None


def artifacts(folder: Path) -> list[Path]:
    """The files that belong into MLflow: all but the journal (its rows are the metrics), the mirror's state, a
    sweep's view (a tag of the experiment), the model unless `tracking.upload_model` says so, and whatever starts with
    a dot. What `log_model` leaves is of a model of MLflow's own."""
    private = {JOURNAL, MIRROR, RUN, VIEW, *exported_model.FILES}
    if files.exists(folder / MODEL) and not read_config(folder).tracking.upload_model:
        private.add(MODEL)
    names = (name for name in files.names(folder) if name not in private and not name.startswith((".", "journal-")))
    return [folder / name for name in names]


def run_folders(root: Path) -> list[Path]:
    """Every run folder and sweep folder at or below `root`, parents before children.

    Below it no link is followed; it may itself be one.
    """
    root = root.resolve() if root.is_symlink() else root
    candidates = (path.parent for path in root.rglob(RUN))
    return sorted(
        (path for path in candidates if path == root or not path.is_symlink()),
        key=lambda path: (len(path.parts), path.name),
    )
