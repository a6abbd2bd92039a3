"""Names the files of a run folder, and reads and writes its config, identity and result."""

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
# Files of a failed rank, or of a non-head node (see node_records.file_of).
RANK_OR_NODE = re.compile(r"failure\.rank\d+\.json|(failure\.ranks|fingerprint|worker)-[\w-]+\.(json|log)", re.ASCII)
VIEW = "view.json"  # how MLflow's UI shows a sweep (see sweep_view); never an artifact
MIRROR = "mirror.json"  # state of the mirror; never an artifact
MODEL = "model.pt"  # the trained weights, with save_model; an artifact with tracking.upload_model
CHECKPOINTS = "checkpoints"  # a folder; never an artifact
STOPPING = ".stopping"  # exists while a run that must stop may still save a checkpoint and end by itself
RUN_LOCK = ".owner"  # names the process that runs the folder, and is locked by it (see run_lock)
PLAIN_CONFIG = ".config.json"  # the config as JSON, for the worker of a program, whose image may lack PyYAML
GIT = ".git.json"  # the code's commit and changes, for a worker whose image may lack git
RESERVE = ".result.reserve"  # reserved room for result.json on a full disk; removed once there is a result
RESERVE_BYTES = 65536
STATUSES = ("finished", "failed", "killed")
KINDS = ("run", "sweep")
PARENT = ".."  # a sweep's jobs lie in its folder
UID = re.compile(r"[\w-]{1,64}", re.ASCII)  # MLflow's search filters contain it


def is_full(error: Exception) -> bool:
    """Whether a write failed for lack of room: a full disk, a used-up quota or a file size limit (ulimit -f)."""
    number = error.errno if isinstance(error, OSError) else None
    # Libraries may put the text into an exception of another type.
    return number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or os.strerror(errno.ENOSPC) in str(error)


def lacks_room(folder: Path) -> bool:
    """Whether the disk of a run has less room than a result needs."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < RESERVE_BYTES


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class RunInfo:
    """The identity of a run or, with `kind` "sweep", of the parent run of a sweep."""

    name: str
    experiment: str
    tracking_uri: str  # without credentials
    kind: str = "run"
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)  # finds the MLflow run after a lost answer
    parent: str | None = None  # ".." in a sweep's job, whose folder is in that of the sweep
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
    """The outcome of a run.

    `metrics` are the summary values by MLflow key. `windows` describe the steady-state throughput: num_windows, median,
    and the quartiles in samples/s. `evaluations` list step, epoch, clock_sec and metrics of each evaluation.
    """

    status: str  # finished | failed | killed
    metrics: dict[str, float] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    # Directions by metric (conf.metric), from targets and declarations.
    directions: dict[str, str] = field(default_factory=dict)
    windows: dict[str, float] = field(default_factory=dict)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    unit: str = "samples"  # the unit of samples
    # For each resume: epoch_num (after which the run continued), from_step, checkpoint, after (the kind of failure that
    # had ended it), time_ms.
    resumes: list[dict[str, Any]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)  # tags of the environment that differed between the attempts
    failure: Failure | None = None
    # With several machines, slowest first: node, step_ms (mean of a step), data_wait_fraction (of its slowest rank).
    nodes: list[dict[str, Any]] = field(default_factory=list)
    neighbours: str = ""  # co-tenants: other processes seen on the run's cores or GPUs
    # What limited the run: cause, words, shares (of its time, by cause), evidence and missing
    # (tracking.measure.bottleneck).
    bottleneck: dict[str, Any] = field(default_factory=dict)
    # Parts of the time from submission to the end: seconds, shares, and start (seconds by its parts).
    goodput: dict[str, Any] = field(default_factory=dict)
    # Facts that make starts comparable between runs (tracking.measure.training.summary.start_facts).
    start: dict[str, Any] = field(default_factory=dict)


def create(root: Path, name: str) -> Path:
    """Make a new folder `root/name`, or `root/name-N` if it exists. Returns its path. Raises OSError."""
    root.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, 1000):
        path = root / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            path.mkdir(mode=0o700)  # private by default: logs may quote anything
        except FileExistsError:
            continue
        return path.resolve()
    raise FileExistsError(f"{root / name}: a thousand runs have this name. Next: move some away")


def keep_attempt(folder: Path, number: int) -> None:
    """Put a number into the names of an attempt's files, so that the next attempt does not overwrite them."""
    names = {RESULT, WORKER_LOG, FINGERPRINT, REQUIREMENTS}
    for name in files.names(folder):
        if name in names or RANK_OR_NODE.fullmatch(name):
            files.replace(folder / name, name.replace(".", f".{number}.", 1))


def earlier_attempts(folder: Path, name: str) -> list[Path]:
    """The files with this name of earlier attempts, in order."""
    pattern = re.escape(name).replace(r"\.", r"\.(\d{1,9})\.", 1)
    matches = [match for match in (re.fullmatch(pattern, other) for other in files.names(folder)) if match]
    return [folder / match[0] for match in sorted(matches, key=lambda match: int(match[1]))]


def reserve(folder: Path) -> None:
    """Reserve room on the disk for a result. Raises OSError on a full disk."""
    with files.opened(folder / RESERVE, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)


def write_result(folder: Path, result: Result) -> None:
    """Write result.json, also on a full disk if room is reserved. Raises OSError."""
    path, reserved = folder / RESULT, folder / RESERVE
    try:
        documents.write_json(path, result)
    except OSError as error:
        text = documents.to_json(result).encode()
        if not is_full(error) or not files.exists(reserved) or len(text) > RESERVE_BYTES:
            raise
        with files.opened(reserved, "r+b") as file:  # overwrites blocks that the file has already
            file.write(text)
            file.truncate()
            os.fsync(file.fileno())
        files.replace(reserved, path.name)
    files.remove(reserved)


def read_info(folder: Path) -> RunInfo:
    """The identity of a run. Raises OSError, and ValueError for a malformed file."""
    path = folder / RUN
    info = checked(RunInfo, documents.read_json(path), path)
    if info.parent not in (None, PARENT):  # others could lead out of the folder, or in a circle
        raise ValueError(f"{path}: parent is {info.parent!r}. Allowed: null, and {PARENT!r} in a sweep's job")
    if info.kind not in KINDS:
        raise ValueError(f"{path}: kind is {info.kind!r}. Allowed: {', '.join(KINDS)}")
    if not UID.fullmatch(info.uid):
        raise ValueError(f"{path}: uid is {info.uid!r}. Allowed: up to 64 letters, digits, '_' and '-'")
    return info


def read_result(folder: Path) -> Result | None:
    """The result of a run; None without one. Raises OSError, and ValueError for a malformed file."""
    path = folder / RESULT
    try:
        result = checked(Result, documents.read_json(path), path)
    except FileNotFoundError:
        return None
    if result.status not in STATUSES:
        raise ValueError(f"{path}: status is {result.status!r}. Allowed: {', '.join(STATUSES)}")
    return result


def read_config(folder: Path) -> schema.RunConfig:
    """The config of a run. Raises OSError, and ConfigError for a malformed file."""
    path = folder / CONFIG
    try:
        return stored_config.parse(files.read_text(path), str(path))
    except UnicodeDecodeError as error:
        raise schema.ConfigError(f"{path}: is not text ({error.reason}). Next: put a copy in place") from None


def write_config(folder: Path, config: schema.RunConfig) -> None:
    with documents.replacing(folder / CONFIG) as file:
        file.write(stored_config.to_text(config).encode())


def write_plain_config(folder: Path, config: schema.RunConfig) -> None:
    with documents.replacing(folder / PLAIN_CONFIG) as file:
        file.write(json.dumps(dataclasses.asdict(config)).encode())


def read_plain_config(folder: Path) -> schema.RunConfig:
    """The config of a run, from the JSON copy if there is one, which needs no PyYAML. Raises as `read_config`."""
    path = folder / PLAIN_CONFIG
    if not files.exists(path):
        return read_config(folder)
    return stored_config.from_dict(schema.RunConfig, documents.read_json(path))


def parent_of(folder: Path) -> Path | None:
    """The folder of the sweep that a run belongs to; None for a single run."""
    parent = read_info(folder).parent
    return (folder / parent).resolve() if parent else None


def artifacts(folder: Path) -> list[Path]:
    """The files that become artifacts in MLflow.

    Left out: the journal (its rows become metrics), the mirror's state, a sweep's view (a tag of the experiment), the
    model without `tracking.upload_model`, the exported model (it becomes an MLflow model), and names with a dot first.
    """
    private = {JOURNAL, MIRROR, RUN, VIEW, *exported_model.FILES}
    if files.exists(folder / MODEL) and not read_config(folder).tracking.upload_model:
        private.add(MODEL)
    names = (name for name in files.names(folder) if name not in private and not name.startswith((".", "journal-")))
    return [folder / name for name in names]


def run_folders(root: Path) -> list[Path]:
    """Every run folder and sweep folder at or below `root`, parents before children.

    `root` may be a link. Links below it are not followed.
    """
    root = root.resolve() if root.is_symlink() else root
    candidates = (path.parent for path in root.rglob(RUN))
    return sorted(
        (path for path in candidates if path == root or not path.is_symlink()),
        key=lambda path: (len(path.parts), path.name),
    )
