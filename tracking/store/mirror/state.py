"""How far MLflow has a folder: the content of its mirror.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from tracking.record import documents, exported_model, files, journal, node_records, run_folder, typed_json

# The status of a result, and what MLflow calls it.
STATUS = {"finished": "FINISHED", "failed": "FAILED", "killed": "KILLED"}


@dataclass
class MirrorState:
    tracking_uri: str  # without credentials
    experiment_id: str | None = None
    run_id: str | None = None
    num_creations: int = 0  # how often a creation of the run was begun: one may land when its answer is long lost
    offset: int = 0  # bytes of the journal that MLflow has acknowledged
    others: dict[str, int] = field(default_factory=dict)  # the same of each other node's journal, by its name
    time_ms: int = 0  # time of the latest record before the offset
    params: dict[str, str] = field(default_factory=dict)  # MLflow has these, and never lets one change.
    refused: list[str] = field(default_factory=list)  # values that MLflow can never hold; they are in the journal
    left_out: list[str] = field(default_factory=list)  # "params KEY" and "tags KEY" that this server does not take
    # The files that were uploaded, each with its size in bytes and its modification time in ns.
    artifacts: dict[str, list[int]] = field(default_factory=dict)
    status: str | None = None  # MLflow's status, once the run is terminated there
    failure: str | None = None  # the tag `failure`, where the run has it
    view: bool = False  # whether the experiment has the sweep's view
    model_id: str | None = None  # the logged model that was made of the run's
    registered: str = ""  # NAME/VERSION of the registered model, where there is one
    model: list[int] | None = None  # size and time of the file that says what was exported, once MLflow has all of it
    compared: bool = False  # whether the server was found to hold all of this, once the run had ended


def load(folder: Path, tracking_uri: str) -> MirrorState:
    """The state of a folder on a server; where nothing is known, everything is sent, which repeats nothing there."""
    path = folder / run_folder.MIRROR
    if not files.exists(path):
        return MirrorState(tracking_uri)
    try:
        state = typed_json.checked(MirrorState, documents.read_json(path), path)
    except ValueError:  # what a machine that went down left of it
        return MirrorState(tracking_uri, num_creations=1)
    state.offset = max(0, state.offset)
    # Another server than before may have had the run even earlier: look for it there, as after a lost answer.
    return state if state.tracking_uri == tracking_uri else MirrorState(tracking_uri, num_creations=1)


def save(folder: Path, state: MirrorState) -> None:
    documents.write_json(folder / run_folder.MIRROR, asdict(state))


def signatures(folder: Path) -> dict[str, list[int]]:
    """Size and modification time of every file that is to be an artifact."""
    stats = {path.name: path.lstat() for path in run_folder.artifacts(folder)}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def signature_of(folder: Path, name: str) -> list[int] | None:
    """Size and modification time of a file; None where there is none."""
    if not files.exists(folder / name):
        return None
    stat = (folder / name).lstat()
    return [stat.st_size, stat.st_mtime_ns]


def complete(folder: Path, state: MirrorState) -> bool:
    """Whether MLflow holds the whole of a run that has ended, and was asked whether it does."""
    result = run_folder.read_result(folder)
    return (
        result is not None
        and state.compared
        and state.status == STATUS[result.status]
        and signature_of(folder, exported_model.ABOUT) in (None, state.model)
        # A run that was resumed has more artifacts: its earlier attempts' files have other names since.
        and state.artifacts.items() >= signatures(folder).items()
        and next(journal.read(folder / run_folder.JOURNAL, state.offset), None) is None
        and not any(
            next(journal.read(folder / name, max(0, state.others.get(name, 0))), None)
            for name in node_records.other_journals(folder)
        )
    )
