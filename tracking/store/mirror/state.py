"""The state of a folder's mirror, as in its mirror.json: what MLflow has of the folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from tracking.record import documents, exported_model, files, journal, node_records, run_folder, typed_json

# MLflow's status for each status of a result.
STATUS = {"finished": "FINISHED", "failed": "FAILED", "killed": "KILLED"}


@dataclass
class MirrorState:
    tracking_uri: str  # without credentials
    experiment_id: str | None = None
    run_id: str | None = None
    num_creations: int = 0  # creations of the run that were begun; one may succeed after its timeout
    offset: int = 0  # bytes of the journal that MLflow has acknowledged
    others: dict[str, int] = field(default_factory=dict)  # the same for each non-head node's journal, by name
    time_ms: int = 0  # time of the latest record before the offset
    params: dict[str, str] = field(default_factory=dict)  # the params in MLflow, which cannot change there
    refused: list[str] = field(default_factory=list)  # messages on values that MLflow can never hold
    left_out: list[str] = field(default_factory=list)  # "params KEY" and "tags KEY" that this server refuses
    # The uploaded files, each with its size in bytes and its modification time in ns.
    artifacts: dict[str, list[int]] = field(default_factory=dict)
    status: str | None = None  # MLflow's status, once the run is terminated there
    failure: str | None = None  # the tag `failure`, if the run has it
    view: bool = False  # whether the experiment has the sweep's view
    model_id: str | None = None  # the logged model of the run
    registered: str = ""  # NAME/VERSION of the registered model, if there is one
    model: list[int] | None = None  # size and time of the file about the export, once MLflow has the whole model
    compared: bool = False  # whether the server was found to hold all of this after the run's end


def load(folder: Path, tracking_uri: str) -> MirrorState:
    """The state of a folder on a server. Without a known state everything is sent again, which repeats no row there."""
    path = folder / run_folder.MIRROR
    if not files.exists(path):
        return MirrorState(tracking_uri)
    try:
        state = typed_json.checked(MirrorState, documents.read_json(path), path)
    except ValueError:  # damaged by a crash of the machine
        return MirrorState(tracking_uri, num_creations=1)
    state.offset = max(0, state.offset)
    # A different server may already have the run from earlier: search for it, as after a lost answer.
    return state if state.tracking_uri == tracking_uri else MirrorState(tracking_uri, num_creations=1)


def save(folder: Path, state: MirrorState) -> None:
    documents.write_json(folder / run_folder.MIRROR, asdict(state))


def signatures(folder: Path) -> dict[str, list[int]]:
    """Size and modification time of every file that is an artifact, by name."""
    stats = {path.name: path.lstat() for path in run_folder.artifacts(folder)}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def signature_of(folder: Path, name: str) -> list[int] | None:
    """Size and modification time of a file; None if it is missing."""
    if not files.exists(folder / name):
        return None
    stat = (folder / name).lstat()
    return [stat.st_size, stat.st_mtime_ns]


def is_complete(folder: Path, state: MirrorState) -> bool:
    """Whether the run has ended and MLflow was found to hold all of it."""
    result = run_folder.read_result(folder)
    return (
        result is not None
        and state.compared
        and state.status == STATUS[result.status]
        and signature_of(folder, exported_model.DESCRIPTION) in (None, state.model)
        # A resumed run has more artifacts in MLflow, since the files of earlier attempts were renamed.
        and state.artifacts.items() >= signatures(folder).items()
        and next(journal.read(folder / run_folder.JOURNAL, state.offset), None) is None
        and not any(
            next(journal.read(folder / name, max(0, state.others.get(name, 0))), None)
            for name in node_records.other_journals(folder)
        )
    )
