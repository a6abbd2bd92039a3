"""A mirror in a thread beside a training."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from conf.schema import RunConfig
from tracking.record import run_folder
from tracking.store import server
from tracking.store.mirror import Mirror
from tracking.store.server import TrackingRefused, TrackingUnavailable

INTERVAL_SEC = 1.0
MIRRORS_PER_INTERVAL = 5  # mirrors that send in one interval; with more, each sends less often
MAX_BACKOFF_SEC = 15.0
MAX_WAITED_BACKOFF_SEC = 2.0  # while a user waits, by default for a minute
MAX_RETRY_AFTER_SEC = 600.0  # upper limit of a server's Retry-After


class MirrorThread:
    """Mirrors one folder while its worker trains; no failure of the server reaches the caller.

    `status` is the present error in one sentence; empty without an error. `num_mirrors` counts this process's mirrors
    of running trainings, which share its computing time.
    """

    def __init__(
        self, folder: Path, tracking_uri: str | None = None, interval_sec: float = INTERVAL_SEC,
        num_mirrors: Callable[[], int] = lambda: 1,
    ) -> None:  # fmt: skip
        self.mirror = Mirror(folder, tracking_uri)
        self.status = ""
        self.num_rows = 0
        self._interval_sec = interval_sec
        self._num_mirrors = num_mirrors
        self._backoff_sec = INTERVAL_SEC
        self._not_before = 0.0  # monotonic seconds; the server's Retry-After ends then
        self._refused = False
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._deadline = float("inf")  # monotonic seconds
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)

    @property
    def mirrors_training(self) -> bool:
        """Whether this thread has not yet seen the run's end."""
        return not self._closing.is_set()

    def start(self) -> MirrorThread:
        self._thread.start()
        return self

    def ended(self) -> None:
        """Upload the rest in the background, now that result.json exists."""
        self._closing.set()
        self._wake.set()

    def close(self, wait_sec: float) -> bool:
        """Upload the rest for up to `wait_sec`; returns whether MLflow has everything.

        Call it once result.json exists. `sync` can upload later what is still missing.
        """
        deadline = time.monotonic() + wait_sec
        self.finish_by(deadline)
        self.join(deadline)
        return self.mirror.complete

    def finish_by(self, deadline: float) -> None:
        """Upload the rest in the background until `deadline`, in seconds of the monotonic clock."""
        self._deadline = deadline
        self.ended()

    def join(self, until: float) -> bool:
        """Wait for the thread until `until`, in monotonic seconds; returns whether it has ended."""
        self._thread.join(max(0.0, until - time.monotonic()))
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._pause(self._attempt(self.mirror.step))
            self._refused = False
            while time.monotonic() < self._deadline and self._unfinished():
                delay_sec = self._attempt(self.mirror.finish)
                if self._refused and self._deadline < float("inf"):
                    break  # a user must change something, which takes longer than this wait
                if self.status:
                    self._pause(min(delay_sec, self._deadline - time.monotonic()))
        except Exception as error:
            # Our bug: the training continues, and the launcher prints why the mirror ended.
            self.status = f"{type(error).__name__}: {error}"

    def _unfinished(self) -> bool:
        """Whether MLflow lacks the end of an ended run. If the run has been resumed, another mirror uploads it."""
        return run_folder.read_result(self.mirror.folder) is not None and not self.mirror.complete

    def _pause(self, sec: float) -> None:
        if self._wake.wait(max(0.0, sec)):
            self._wake.clear()
            self._backoff_sec = INTERVAL_SEC  # a user waits now: try at once
        time.sleep(max(0.0, min(self._not_before, self._deadline) - time.monotonic()))

    def _attempt(self, action: Callable[[], int | None]) -> float:
        """Try once; returns the seconds to wait before the next try."""
        try:
            self.num_rows += action() or 0
        except TrackingUnavailable as error:
            self._not_before = time.monotonic() + min(error.retry_after_sec, MAX_RETRY_AFTER_SEC)
            return self._back_off(str(error))
        except TrackingRefused as error:  # a refusal may end, too: a user may renew a token
            self._refused = True
            return self._back_off(str(error))
        except OSError as error:  # mirror.json does not fit on a full disk; rows are sent again
            return self._back_off(f"{type(error).__name__}: {error}")
        self.status, self._backoff_sec = "", INTERVAL_SEC
        return self._interval_sec * max(1.0, self._num_mirrors() / MIRRORS_PER_INTERVAL)

    def _back_off(self, status: str) -> float:
        self.status = status
        delay_sec = self._backoff_sec
        self._backoff_sec = min(2 * delay_sec, MAX_BACKOFF_SEC)
        return delay_sec if self._deadline == float("inf") else min(delay_sec, MAX_WAITED_BACKOFF_SEC)


def mirror_of(folder: Path, config: RunConfig) -> MirrorThread | None:
    """A started mirror of a folder to its config's server; None if offline."""
    if config.tracking.offline:
        return None
    uri = server.absolute_uri(config.tracking.uri) if config.tracking.uri else server.default_uri()
    return MirrorThread(folder, uri).start()
