"""Runs mirrors: one in a thread beside a training, or one after the other over many folders."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tracking import run_folder
from tracking.mirror import Mirror
from tracking.server import TrackingRefused, TrackingUnavailable

INTERVAL_SEC = 1.0
MAX_BACKOFF_SEC = 30.0
SYNC_ATTEMPTS = 3  # of `sync` on one folder; with the back-off between, a restarting server is forgiven


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
            while time.monotonic() < self._deadline and not self.mirror.complete:
                delay_sec = self._attempt(self.mirror.finish)
                if self.status:
                    self._pause(min(delay_sec, self._deadline - time.monotonic()))
        except Exception as error:
            # A row that MLflow cannot hold, a folder that is gone, a bug of ours: the training goes on all the same,
            # and what the launcher prints from `status` says why the mirror ended.
            self.status = f"{type(error).__name__}: {error}"

    def _pause(self, sec: float) -> None:
        if self._wake.wait(max(0.0, sec)):
            self._wake.clear()
            self._backoff_sec = INTERVAL_SEC  # somebody waits now: try at once, and often

    def _attempt(self, action: Callable[[], int | None]) -> float:
        """Try once; return for how many seconds to wait before the next try."""
        try:
            self.num_rows += action() or 0
        except (TrackingUnavailable, TrackingRefused) as error:  # a refusal may end too: somebody renews a token
            self.status = str(error)
            self._backoff_sec = min(2 * self._backoff_sec, MAX_BACKOFF_SEC)
            return self._backoff_sec / 2
        self.status, self._backoff_sec = "", INTERVAL_SEC
        return self._interval_sec


@dataclass(frozen=True)
class Outcome:
    """What `sync` did with one folder: `state` is complete, running (no result yet), or failed (see `message`)."""

    folder: Path
    state: str
    message: str = ""


def sync(
    folders: Iterable[Path], tracking_uri: str | None = None, progress: Callable[[Outcome], None] | None = None
) -> list[Outcome]:
    """Upload what MLflow lacks of each folder, however its run ended; calling it again changes nothing more.

    A folder without result.json is shipped as far as it goes and left running. After a server could not be reached,
    its other folders are not tried. `tracking_uri` overrides the folders' own; `progress` is told each outcome.
    """
    outcomes: list[Outcome] = []
    unreachable: dict[str, str] = {}  # server: message
    for folder in folders:
        outcome = _sync_folder(Path(folder), tracking_uri, unreachable)
        outcomes.append(outcome)
        if progress:
            progress(outcome)
    return outcomes


def _sync_folder(folder: Path, tracking_uri: str | None, unreachable: dict[str, str]) -> Outcome:
    try:
        mirror = Mirror(folder, tracking_uri)
        server = mirror.state.tracking_uri
        for attempt in range(SYNC_ATTEMPTS):
            if server in unreachable:
                break
            try:
                return _bring_up_to_date(mirror)
            except TrackingUnavailable as error:
                if attempt + 1 == SYNC_ATTEMPTS:
                    unreachable[server] = str(error)
                else:
                    time.sleep(2**attempt)
        return Outcome(folder, "failed", unreachable[server])
    except (TrackingRefused, ValueError, OSError, TypeError) as error:  # of this folder: the others can still go
        return Outcome(folder, "failed", f"{type(error).__name__}: {error}")


def _bring_up_to_date(mirror: Mirror) -> Outcome:
    if mirror.complete:
        return Outcome(mirror.folder, "complete")
    if run_folder.read_result(mirror.folder) is None:
        mirror.step()
        return Outcome(mirror.folder, "running", "no result.json yet: shipped so far, not ended")
    mirror.finish()
    return Outcome(mirror.folder, "complete")
