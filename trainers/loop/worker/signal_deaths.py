"""Makes a worker's processes die of the signals that they get, and with their parent process."""

from __future__ import annotations

import ctypes
import os
import signal

from tracking.record import node_records

PR_SET_PDEATHSIG = 1  # The number is from linux/prctl.h.
# These signals end a process. torchrun's agent, Lightning and Python (for Ctrl-C) would turn them into exceptions,
# which may be raised at any line of a training.
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def die_of_signals() -> None:
    """Let stop signals end this process, whatever handlers it has; ignored signals stay ignored.

    A scheduler's warning (SIGUSR2) may reach all processes, but only the supervisor acts on it.
    """
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    if node_records.LEAVES_SIGTERM in os.environ:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def signal_of(error: BaseException | None) -> int:
    """Return the signal that torchrun's agent turned into this exception or a cause of it; 0 if there was no signal."""
    while error is not None:
        if number := getattr(error, "sigval", 0):  # attribute of torchrun's SignalException
            return int(number)
        error = error.__context__
    return 0


def outlive_parent() -> None:
    """Revoke `die_with`."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, 0)


def die_with(parent: int) -> None:
    """Make the kernel kill this process when its parent dies, however the parent dies."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # The parent died before the call.
        os.kill(os.getpid(), signal.SIGKILL)
