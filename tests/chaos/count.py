"""Compares run folders with MLflow's database and files, without the code under test.

Rows are compared by key, step, time and value, params and tags by value, the status by result.json, files by digest.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tests.support.rows import Store, expected_rows, query, records, runs_with_uid, stored_rows
from tracking.record import run_folder

STATUS = {"finished": "FINISHED", "failed": "FAILED", "killed": "KILLED"}
NO_ARTIFACTS = {run_folder.JOURNAL, run_folder.RUN, run_folder.MIRROR, run_folder.VIEW, run_folder.MODEL}
NOTE = "mlflow.note.content"  # the description, which the end of a run writes anew
UNDER_WAY = ".artifact.uploading."  # MLflow's server begins a file so, and lists none that was cut off
MAX_PARAM_CHARS, MAX_TAG_CHARS = 6000, 8000  # MLflow's


def folders(cwd: Path) -> list[Path]:
    """The folders of runs and sweeps, parents first."""
    run_folders = sorted(path.parent for path in (cwd / "runs").rglob(run_folder.RUN))
    return sorted(run_folders, key=lambda path: len(path.parts))


def run_ids(store: Store) -> set[str]:
    """The rows of all runs that are not deleted."""
    if not store.database.exists():
        return set()
    return {run_id for (run_id,) in query(store, "select run_uuid from runs where lifecycle_stage = 'active'")}


def compare(folder: Path, store: Store) -> tuple[int, list[str]]:
    """The number of rows, and what is lost, doubled or wrong."""
    info = json.loads((folder / run_folder.RUN).read_text())
    ids = [run_id for run_id, stage in runs_with_uid(store, info["uid"]) if stage == "active"]
    if len(ids) != 1:
        return 0, [f"{len(ids)} runs bear its uid"]
    run_id, wanted = ids[0], journal_of(folder)
    rows = stored_rows(store, run_id)
    wrong = []
    if lost := set(wanted) - set(rows):
        wrong.append(f"{len(lost)} of {len(wanted)} rows are lost: {sorted(lost)[:3]}")
    if altered := set(rows) - set(wanted):
        wrong.append(f"{len(altered)} rows are in no journal: {sorted(altered)[:3]}")
    if len(rows) != len(set(rows)):
        wrong.append(f"{len(rows) - len(set(rows))} rows are there twice")
    wrong += texts(folder, store, run_id) + ending(folder, store, run_id) + artifacts(folder, store, run_id)
    if info.get("parent"):
        wrong += link_to_parent(folder, store, run_id)
    return len(wanted), wrong


def journal_of(folder: Path) -> list[tuple]:
    return expected_rows(folder) if (folder / run_folder.JOURNAL).exists() else []


def texts(folder: Path, store: Store, run_id: str) -> list[str]:
    """What is wrong with params and tags: those of the journal, the newest value of each."""
    wanted: dict[str, dict[str, str]] = {"params": {}, "tags": {}}
    for record in records(folder) if (folder / run_folder.JOURNAL).exists() else ():
        if record["kind"] in wanted:
            wanted[record["kind"]] |= {key: str(value) for key, value in record.get("values", {}).items()}
    params = dict(query(store, "select key, value from params where run_uuid = ?", run_id))
    tags = dict(query(store, "select key, value from tags where run_uuid = ?", run_id))
    wrong = [f"the param {key} is in no journal" for key in params.keys() - wanted["params"].keys()]
    for kind, there, limit in (("param", params, MAX_PARAM_CHARS), ("tag", tags, MAX_TAG_CHARS)):
        for key, value in wanted[f"{kind}s"].items():
            cut = value if len(value) <= limit else value[: limit - 1] + "…"
            if key != NOTE and there.get(key) != cut:
                wrong.append(f"the {kind} {key} is {there.get(key)!r}, not {cut!r}")
    return wrong


def ending(folder: Path, store: Store, run_id: str) -> list[str]:
    """What is wrong with status, failure and times."""
    path = folder / run_folder.RESULT
    [(status, start, end)] = query(store, "select status, start_time, end_time from runs where run_uuid = ?", run_id)
    if not path.exists():
        return [f"there is no result, and MLflow says {status}"]
    result = json.loads(path.read_text())
    failure = (result["failure"] or {}).get("kind")
    tags = dict(query(store, "select key, value from tags where run_uuid = ?", run_id))
    wrong = [] if status == STATUS[result["status"]] else [f"the status is {status}, not {result['status']}"]
    wrong += [] if tags.get("failure") == failure else [f"the tag failure is {tags.get('failure')}, not {failure}"]
    return wrong + ([] if end and end >= start else [f"it ended at {end} and began at {start}"])


def artifacts(folder: Path, store: Store, run_id: str) -> list[str]:
    """What is wrong with the files, by SHA-256."""
    [(uri,)] = query(store, "select artifact_uri from runs where run_uuid = ?", run_id)
    if uri.startswith("mlflow-artifacts:/"):
        there = store.database.parent / "served" / uri.removeprefix("mlflow-artifacts:/").lstrip("/")
    else:
        there = Path(uri.removeprefix("file://"))
    here = {
        path.name: digest(path)
        for path in folder.iterdir()
        if path.is_file() and not path.is_symlink() and path.name[0] != "." and path.name not in NO_ARTIFACTS
    }
    whole = [path for path in there.rglob("*") if path.is_file() and not path.name.startswith(UNDER_WAY)]
    stored = {path.relative_to(there).as_posix(): digest(path) for path in whole}
    wrong = [f"the file {name} is not there" for name in sorted(here.keys() - stored.keys())]
    wrong += [f"the file {name} is in no folder" for name in sorted(stored.keys() - here.keys())]
    return wrong + [f"the file {name} is another" for name in here.keys() & stored.keys() if here[name] != stored[name]]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def link_to_parent(folder: Path, store: Store, run_id: str) -> list[str]:
    uid = json.loads((folder.parent / run_folder.RUN).read_text())["uid"]
    [parent, *_] = [parent_id for parent_id, stage in runs_with_uid(store, uid) if stage == "active"] or [None]
    tags = dict(query(store, "select key, value from tags where run_uuid = ?", run_id))
    link = tags.get("mlflow.parentRunId")
    return [] if link == parent else [f"its parent run is {link}, not {parent}"]


def strangers(run_folders: list[Path], store: Store, before: set[str]) -> list[str]:
    """Runs that are there since, and belong to none of the folders."""
    uids = [json.loads((folder / run_folder.RUN).read_text())["uid"] for folder in run_folders]
    ours = {run_id for uid in uids for run_id, _ in runs_with_uid(store, uid)} if store.database.exists() else set()
    return [f"the run {run_id} belongs to no folder" for run_id in sorted(run_ids(store) - before - ours)]
