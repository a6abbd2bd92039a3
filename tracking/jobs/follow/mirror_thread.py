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
EACH_INTERVAL = 5  # mirrors of a process that send together in an interval; of more, each sends less often
MAX_BACKOFF_SEC = 30.0
MAX_RETRY_AFTER_SEC = 600.0  # the longest that a server's Retry-After is heeded


class MirrorThread:
    """Mirrors one folder while its worker trains; no failure of the server reaches the caller.

    `status` says in one sentence what is wrong now; it is empty while all is well. `num_mirrors` counts those of this
    process that mirror a training now, which share what it may compute.
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
        self._not_before = 0.0  # monotonic seconds; until when the server has asked to be left alone
        self._refused = False
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._deadline = float("inf")  # monotonic seconds
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)

    @property
    def mirrors_training(self) -> bool:
        """Whether the run goes on, as far as this thread was told."""
        return not self._closing.is_set()

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
        deadline = time.monotonic() + wait_sec
        self.finish_by(deadline)
        self.join(deadline)
        return self.mirror.complete

    def finish_by(self, deadline: float) -> None:
        """The same until `deadline`, in seconds of the monotonic clock, without keeping anybody waiting."""
        self._deadline = deadline
        self.ended()

    def join(self, until: float) -> bool:
        """Wait for the end of it until then; whether it has come."""
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
        except TrackingRefused as error:  # a refusal may end too: somebody renews a token
            self._refused = True
            return self._back_off(str(error))
        except OSError as error:  # a full disk takes no mirror.json; what was sent is sent again
            return self._back_off(f"{type(error).__name__}: {error}")
        self.status, self._backoff_sec = "", INTERVAL_SEC
        return self._interval_sec * max(1.0, self._num_mirrors() / EACH_INTERVAL)

    def _back_off(self, status: str) -> float:
        self.status = status
        self._backoff_sec = min(2 * self._backoff_sec, MAX_BACKOFF_SEC)
        return self._backoff_sec / 2


def mirror_of(folder: Path, config: RunConfig) -> MirrorThread | None:
    """Mirror a folder to the server of its config from now on; None where that is offline."""
    if config.tracking.offline:
        return None
    uri = server.absolute_uri(config.tracking.uri) if config.tracking.uri else server.default_uri()
    return MirrorThread(folder, uri).start()
