"""The first process of a worker's container: python guard.py RUN_DIR FOLDER COMMAND...

It runs COMMAND in FOLDER and ends as that does. Its standard input is a pipe whose other end the launcher holds and
never writes to. However the launcher ends, the pipe ends with it, and then the guard ends the container: engines go on
running one whose starter is gone. As process 1 it also passes on the signals to stop, which the kernel would keep from
a process 1 without handlers.

It runs before anything of the image is known to work, so it needs the standard library alone.
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

REFUSED = 78  # EX_CONFIG of sysexits.h: what it prints last says what the user can mend
SIGNALLED = 128  # A shell's rule: a process that signal N killed has the exit code 128 + N.
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
        return f"{folder}: the folder that the launcher was started in is not there in the container ({error.strerror})"
    try:
        with tempfile.TemporaryFile(dir=run_dir):
            return ""
    except OSError as error:
        facts = Path(run_dir).stat() if Path(run_dir).exists() else None
        own, owner = f"{os.getuid()}:{os.getgid()}", f"{facts.st_uid}:{facts.st_gid}" if facts else "nobody known"
        return (
            f"stack.container.user: user {own} of the container cannot write to the run folder {run_dir}, which belongs"
            f" to {owner} ({error.strerror}); leave stack.container.user out, or give one that can"
        )


def end_with_launcher() -> None:
    """Wait until the launcher lets go of the pipe, then kill everything here."""
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass
    if os.getpid() == 1:
        os.kill(-1, signal.SIGKILL)  # All of the container but this process, whose end is the container's.
    else:
        os.killpg(0, signal.SIGKILL)
    os._exit(SIGNALLED + signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
