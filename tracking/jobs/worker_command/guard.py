"""The first process of a worker's container: python guard.py RUN_DIR FOLDER COMMAND...

It runs COMMAND in FOLDER and returns its exit code. Its standard input is a pipe; the launcher holds the other end and
never writes to it. However the launcher ends, the pipe closes, and the guard ends the container: an engine would keep
it running. As process 1 it also passes on stop signals, since the kernel does not deliver them to a process 1 without
handlers.

It imports only the standard library, since nothing else in the image may work.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

REFUSED = 78  # EX_CONFIG of sysexits.h: the last printed line says what the user can mend
SIGNALLED = 128  # added to the signal's number, as shells do
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(run_dir: str, folder: str, command: list[str]) -> int:
    """Run the command; returns its exit code, or REFUSED if a worker cannot use these folders."""
    threading.Thread(target=end_with_launcher, daemon=True).start()
    if trouble := unusable(run_dir, folder):
        print(trouble, flush=True)
        return REFUSED
    worker: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, frame: FrameType | None) -> None:
        # If this is not process 1, it shares a process group with the worker, and the whole group gets the signal.
        if worker is not None and os.getpid() == 1:
            worker.send_signal(number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    worker = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    code = worker.wait()
    return code if code >= 0 else SIGNALLED - code


def unusable(run_dir: str, folder: str) -> str:
    """The reason why a worker cannot use these folders; empty if it can."""
    try:
        os.chdir(folder)
    except OSError as error:
        return f"{folder}: the launcher's working directory is missing in the container ({error.strerror})"
    try:
        with tempfile.TemporaryFile(dir=run_dir):
            return ""
    except OSError as error:
        facts = Path(run_dir).stat() if Path(run_dir).exists() else None
        user, owner = f"{os.getuid()}:{os.getgid()}", f"{facts.st_uid}:{facts.st_gid}" if facts else "an unknown user"
        return (
            f"stack.container.user: user {user} of the container cannot write to the run folder {run_dir}, which"
            f" belongs to {owner} ({error.strerror}). Next: leave stack.container.user out, or give a user that can"
        )


def end_with_launcher() -> None:
    """Wait until the launcher's end of the pipe closes, then kill all processes of the container."""
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass
    if os.getpid() == 1:
        os.kill(-1, signal.SIGKILL)  # All processes but this one; its exit ends the container.
    else:
        os.killpg(0, signal.SIGKILL)
    os._exit(SIGNALLED + signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
