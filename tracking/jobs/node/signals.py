"""The signals that tell a launcher or a supervisor to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# One state for the process, like its signal handlers. It has no lock, since a handler must not take one.
_since = {"again": False}


class Interrupted(KeyboardInterrupt):
    """The launcher was told to stop (Ctrl-C, SIGTERM, a closed terminal). `except Exception` does not catch it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


def raise_on_signals(*more: int) -> None:
    """Raise Interrupted in the main thread at the next stop signal, or at one of `more`.

    Later signals only make `hurried` true, until this is called again: they must not cut off the short cleanup.
    """
    _since["again"] = False

    def interrupt(signum: int, frame: FrameType | None) -> None:
        for number in stopping:
            if signal.getsignal(number) is interrupt:
                signal.signal(number, ignore)
        raise Interrupted(signum)

    def ignore(signum: int, frame: FrameType | None) -> None:
        """A handler that does nothing. SIG_IGN would look like a signal that the user's shell ignores (nohup)."""
        _since["again"] = True

    stopping = (*STOPPING, *more)
    for number in stopping:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stopping)  # Launchers start supervisors with these blocked.


def ignore_further() -> None:
    """Ignore stop signals until `raise_on_signals` is called again: the rest is short."""
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda signum, frame: None)


def hurried() -> bool:
    """Whether another stop signal has come since the one that raised Interrupted."""
    return _since["again"]


@contextmanager
def undisturbed() -> Iterator[None]:
    """Defer stop signals until the block is done, so that it runs whole; the last signal takes effect then."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda signum, frame: came.append(signum)) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[-1])
