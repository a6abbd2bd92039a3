"""Uploads what MLflow lacks of run folders, one folder after the other, however the runs ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tracking.jobs.plan import repair
from tracking.record import Running, documents, files, run_folder
from tracking.store.mirror import Mirror
from tracking.store.server import TrackingUnavailable

MAX_ATTEMPTS = 3  # attempts for each folder; their back-off outlasts the restart of a server
MAX_RETRY_AFTER_SEC = 60.0  # upper limit of a server's Retry-After, since a user waits


@dataclass(frozen=True)
class Outcome:
    """The outcome of `sync` for one folder: `state` is complete, running, or failed; `message` says more."""

    folder: Path
    state: str
    message: str = ""


def sync(
    folders: Iterable[Path],
    tracking_uri: str | None = None,
    progress: Callable[[Outcome], None] | None = None,
    ended: bool = False,
    again: bool = False,
) -> list[Outcome]:
    """Upload the parts of each folder and its parent that MLflow lacks. A second call changes nothing.

    A run that was cut off is ended first (see `repair`, also for `ended`). Of a running one, what exists is uploaded.
    `again` also resends what MLflow already has. Folders of an unreachable server are not tried again. `tracking_uri`
    overrides the folders' own; `progress` gets each outcome.
    """
    outcomes: list[Outcome] = []
    unreachable: dict[str, str] = {}  # by server: why it could not be reached
    for folder in with_parents(folders):
        outcome = _sync_folder(folder, tracking_uri, unreachable, ended, again)
        outcomes.append(outcome)
        if progress:
            progress(outcome)
    return outcomes


def with_parents(folders: Iterable[Path]) -> list[Path]:
    """The folders without duplicates, each after its parent, so that no parent is left running."""
    ordered: dict[Path, Path] = {}  # given path by resolved path
    for folder in map(Path, folders):
        with suppress(OSError, ValueError):  # the outcome of the folder reports the error
            parent = run_folder.parent_of(folder)
            if parent is not None and files.exists(parent / run_folder.RUN):
                ordered.setdefault(parent.resolve(), parent)
        ordered.setdefault(folder.resolve(), folder)
    return list(ordered.values())


def _sync_folder(
    folder: Path, tracking_uri: str | None, unreachable: dict[str, str], ended: bool, again: bool
) -> Outcome:
    try:
        mirror = Mirror(folder, tracking_uri)
        if again:
            mirror.forget()
        server = mirror.state.tracking_uri
        for attempt in range(MAX_ATTEMPTS):
            if server in unreachable:
                break
            try:
                return _bring_up_to_date(mirror, ended)
            except TrackingUnavailable as error:
                if attempt + 1 == MAX_ATTEMPTS:
                    unreachable[server] = str(error)
                else:
                    time.sleep(max(2**attempt, min(error.retry_after_sec, MAX_RETRY_AFTER_SEC)))
        return Outcome(folder, "failed", with_next(unreachable[server], "sync again when it answers"))
    except Exception as error:  # a broken or foreign folder must not stop the others
        return Outcome(folder, "failed", with_next(f"{type(error).__name__}: {error}", "mend that, then sync again"))


def _bring_up_to_date(mirror: Mirror, ended: bool) -> Outcome:
    folder, words = mirror.folder, []
    if not mirror.complete:
        try:
            if repair(folder, ended):
                words.append(f"no process runs it: ended as {describe(folder)}")
        except Running as error:
            mirror.step()
            then = "sync again once it has ended" if error.certain else f"if it has ended, sync --ended {folder}"
            return Outcome(folder, "running", with_next(f"{error}: its records so far are uploaded", then))
        mirror.finish()
        documents.remove_temporary(folder)
    if mirror.state.refused:
        words.append(f"left in the journal, since MLflow cannot hold it: {'; '.join(mirror.state.refused)}")
    return Outcome(folder, "complete" if mirror.complete else "running", "; ".join(words))


def with_next(message: str, then: str) -> str:
    """The message with a next step; its own if it has one."""
    return message if "Next: " in message else f"{message.rstrip('.')}. Next: {then}"


def describe(folder: Path) -> str:
    """How a run ended, in two words."""
    result = run_folder.read_result(folder)
    if result is None:
        return "running"
    return f"{result.status}: {result.failure.kind}" if result.failure else result.status
