"""Which runs a report should cover: those that its selectors name, without two kinds (`left_out`)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracking.analysis.audit.journals import JournalFigures

READ = ("run.json", "journal.jsonl", "config.yaml", "result.json", "fingerprint.json", "ceilings.json", "mirror.json")
SHARED = "sweep.jobs_at_once="  # prefix of the tag `neighbours` of a run beside other jobs of its sweep
SHARED_MACHINE, RUN_AGAIN = "shared its machine", "run again"


def read(roots: Sequence[Path]) -> tuple[dict[str, JournalFigures], dict[str, str]]:
    """All runs at or below the roots, by uid; and each sweep's folder name, by the names of its parent run.

    Damaged and foreign folders are skipped. If the report covers such a run, the run counts as missing.
    """
    runs: dict[str, JournalFigures] = {}
    sweeps: dict[str, str] = {}
    for path in (path for root in roots for path in sorted(root.rglob("run.json"))):
        if path.parent.is_symlink() or not _is_plain(path.parent):
            continue
        try:
            info = json.loads(path.read_text(encoding="utf-8"))
            if info.get("kind") == "sweep":
                names = [str(info.get("name")), *JournalFigures(path.parent).ids]
                sweeps |= dict.fromkeys(names, path.parent.name)
            elif path.with_name("journal.jsonl").exists():
                run = JournalFigures(path.parent)
                runs[run.uid] = run
        except (ValueError, AttributeError, OSError, RecursionError):
            continue
    return runs, sweeps


def _is_plain(folder: Path) -> bool:
    """Whether a folder's inputs are regular files: a link could lead elsewhere, and a pipe never ends."""
    present = [folder / name for name in READ if os.path.lexists(folder / name)]
    return all(path.is_file() and not path.is_symlink() for path in present)


def selected(selector: str, runs: Mapping[str, JournalFigures], sweeps: Mapping[str, str]) -> set[str]:
    """The uids of the runs that a selector names: by path, else by sweep, else by another name."""
    path, name = Path(selector).resolve(), Path(selector).name
    by_path = {uid for uid, run in runs.items() if path in [(folder := run.folder.resolve()), *folder.parents]}
    if by_path:
        return by_path
    of_sweep = {uid for uid, run in runs.items() if run.tags.get("sweep", "") in {name, sweeps.get(selector)} - {""}}
    return of_sweep or {
        uid
        for uid, run in runs.items()
        if selector in (run.name, run.experiment, *run.ids) or name in run.folder.parts or not name
    }


def left_out(runs: Mapping[str, JournalFigures], with_neighbours: bool) -> dict[str, str]:
    """Why selected runs are in no setting, by uid."""
    sharing = {uid for uid, run in runs.items() if str(run.tags.get("neighbours", "")).startswith(SHARED)}
    beside = sharing if not with_neighbours and len(sharing) < len(runs) else set()
    rest = {uid: run for uid, run in runs.items() if uid not in beside}
    return dict.fromkeys(beside, SHARED_MACHINE) | {uid: RUN_AGAIN for uid in rest if _superseded(rest[uid], rest)}


def _superseded(run: JournalFigures, runs: Mapping[str, JournalFigures]) -> bool:
    """Whether a run failed and its job was run again. A diverged run stays, unless the last attempt diverged too."""
    if not run.job or not run.failed:
        return False
    attempts: list[Any] = [other for other in runs.values() if other.job == run.job]
    last = max(attempts, key=lambda other: other.created_ms)
    return run.created_ms < last.created_ms and (run.failure != "nan" or last.failure == "nan")
