"""How a worker's processes end: of the signals that they get, and with who started them."""

from __future__ import annotations

import ctypes
import os
import signal

from tracking.record import node_records

PR_SET_PDEATHSIG = 1  # The number is from linux/prctl.h.
# These end a process. Torchrun's agent and Lightning would make exceptions of them, which may come at any line of a
# training, and so does Python of Ctrl-C.
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def die_of_signals() -> None:
    """Have signals end this process, whatever was to be done about them; those that are ignored still are.

    A scheduler's warning is the supervisor's to heed, and may reach all processes.
    """
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    if node_records.SPARED in os.environ:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def signal_of(error: BaseException | None) -> int:
    """The signal of which torchrun's agent has made this exception, or one that this came of; 0 for none."""
    while error is not None:
        if number := getattr(error, "sigval", 0):  # It is a SignalException's.
            return int(number)
        error = error.__context__
    return 0


def outlive_parent() -> None:
    """Take `die_with` back."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, 0)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, however the parent dies."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # The parent died before the call.
        os.kill(os.getpid(), signal.SIGKILL)
