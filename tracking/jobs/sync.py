"""Runs mirrors: one in a thread beside a training, or one after the other over many folders."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tracking.jobs.repair import repair
from tracking.mirror import Mirror, TrackingRefused, TrackingUnavailable
from tracking.run import Running, run_folder

INTERVAL_SEC = 1.0
MAX_BACKOFF_SEC = 30.0
MAX_RETRY_AFTER_SEC = 600.0  # that a server is granted; what it asks for is kept to below that
SYNC_ATTEMPTS = 3  # of `sync` on one folder; with the back-off between, a restarting server is forgiven
SYNC_RETRY_AFTER_SEC = 60.0  # the same for `sync`, before which somebody waits


class MirrorThread:
    """Mirrors one folder while its worker trains; no failure of the server reaches the caller.

    `status` says in one sentence what is wrong now; it is empty while all is well.
    """

    def __init__(self, folder: Path, tracking_uri: str | None = None, interval_sec: float = INTERVAL_SEC) -> None:
        self.mirror = Mirror(folder, tracking_uri)
        self.status = ""
        self.num_rows = 0
        self._interval_sec = interval_sec
        self._backoff_sec = INTERVAL_SEC
        self._not_before = 0.0  # monotonic seconds; until when the server has asked to be left alone
        self._refused = False
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._deadline = float("inf")  # monotonic seconds
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)

    def start(self) -> MirrorThread:
        self._thread.start()
        return self

    def ended(self) -> None:
        """Ship the rest, now that result.json exists, without keeping anybody waiting."""
        self._closing.set()
        self._wake.set()

    def close(self, wait_sec: float) -> bool:
        """Ship the rest, now that result.json exists, for up to `wait_sec`; whether MLflow has everything then.

        What is missing after that is in the folder, and `sync` uploads it.
        """
        self._deadline = time.monotonic() + wait_sec
        self.ended()
        self._thread.join(wait_sec)
        return self.mirror.complete

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._pause(self._attempt(self.mirror.step))
            self._refused = False
            while time.monotonic() < self._deadline and self._unfinished():
                delay_sec = self._attempt(self.mirror.finish)
                if self._refused and self._deadline < float("inf"):
                    break  # somebody has to change something, which takes longer than anybody waits here
                if self.status:
                    self._pause(min(delay_sec, self._deadline - time.monotonic()))
        except Exception as error:
            # A bug of ours: the training goes on all the same, and what the launcher prints says why the mirror ended.
            self.status = f"{type(error).__name__}: {error}"

    def _unfinished(self) -> bool:
        """Whether there is an end that MLflow lacks; a run that was resumed meanwhile has another mirror."""
        return run_folder.read_result(self.mirror.folder) is not None and not self.mirror.complete

    def _pause(self, sec: float) -> None:
        if self._wake.wait(max(0.0, sec)):
            self._wake.clear()
            self._backoff_sec = INTERVAL_SEC  # somebody waits now: try at once, and often
        time.sleep(max(0.0, min(self._not_before, self._deadline) - time.monotonic()))

    def _attempt(self, action: Callable[[], int | None]) -> float:
        """Try once; return for how many seconds to wait before the next try."""
        try:
            self.num_rows += action() or 0
        except TrackingUnavailable as error:
            self._not_before = time.monotonic() + min(error.retry_after_sec, MAX_RETRY_AFTER_SEC)
            return self._back_off(str(error))
        except TrackingRefused as error:  # may end too: somebody renews a token
            self._refused = True
            return self._back_off(str(error))
        except OSError as error:  # a full disk takes no mirror.json; what was sent is sent again
            return self._back_off(f"{type(error).__name__}: {error}")
        self.status, self._backoff_sec = "", INTERVAL_SEC
        return self._interval_sec

    def _back_off(self, status: str) -> float:
        self.status = status
        self._backoff_sec = min(2 * self._backoff_sec, MAX_BACKOFF_SEC)
        return self._backoff_sec / 2


@dataclass(frozen=True)
class Outcome:
    """What `sync` did with one folder: `state` is complete, running, or failed; `message` says more."""

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
    """Upload what MLflow lacks of each folder and its parent, however the run ended; again, it changes nothing more.

    A run that nobody can end any more is ended here, see `repair`, which also says what `ended` is; one that goes on is
    shipped as far as it is. `again` sends what MLflow had before, too. After a server could not be reached, its other
    folders are not tried. `tracking_uri` overrides the folders' own; `progress` is told each outcome.
    """
    outcomes: list[Outcome] = []
    unreachable: dict[str, str] = {}  # server: message
    for folder in with_parents(folders):
        outcome = _sync_folder(folder, tracking_uri, unreachable, ended, again)
        outcomes.append(outcome)
        if progress:
            progress(outcome)
    return outcomes


def with_parents(folders: Iterable[Path]) -> list[Path]:
    """The folders, each once and behind the parent that its run is linked to: no parent may be left running."""
    found: dict[Path, Path] = {}  # as given, by where it is
    for folder in map(Path, folders):
        with suppress(OSError, ValueError, TypeError):  # what is wrong with it is told with its outcome
            parent = run_folder.parent_of(folder)
            if parent is not None and (parent / run_folder.RUN).exists():
                found.setdefault(parent.resolve(), parent)
        found.setdefault(folder.resolve(), folder)
    return list(found.values())


def _sync_folder(
    folder: Path, tracking_uri: str | None, unreachable: dict[str, str], ended: bool, again: bool
) -> Outcome:
    try:
        mirror = Mirror(folder, tracking_uri)
        if again:
            mirror.forget()
        server = mirror.state.tracking_uri
        for attempt in range(SYNC_ATTEMPTS):
            if server in unreachable:
                break
            try:
                return _bring_up_to_date(mirror, ended)
            except TrackingUnavailable as error:
                if attempt + 1 == SYNC_ATTEMPTS:
                    unreachable[server] = str(error)
                else:
                    time.sleep(max(2**attempt, min(error.retry_after_sec, SYNC_RETRY_AFTER_SEC)))
        return Outcome(folder, "failed", unreachable[server])
    except (TrackingRefused, ValueError, OSError, TypeError) as error:  # of this folder: the others can still go
        return Outcome(folder, "failed", f"{type(error).__name__}: {error}")


def _bring_up_to_date(mirror: Mirror, ended: bool) -> Outcome:
    folder, words = mirror.folder, []
    if not mirror.complete:
        try:
            if repair(folder, ended):
                words.append(f"nobody runs it any more: ended as {describe(folder)}")
        except Running as error:
            mirror.step()
            hint = "" if error.certain else f"; if it has ended, say so: sync --ended {folder}"
            return Outcome(folder, "running", f"{error}: uploaded as far as it is{hint}")
        mirror.finish()
    if mirror.state.refused:
        words.append(f"left in the journal, since MLflow cannot hold it: {'; '.join(mirror.state.refused)}")
    return Outcome(folder, "complete" if mirror.complete else "running", "; ".join(words))


def describe(folder: Path) -> str:
    """A run's end in two words."""
    result = run_folder.read_result(folder)
    if result is None:
        return "running"
    return f"{result.status}: {result.failure.kind}" if result.failure else result.status
