"""The worker of a program: python -m tracking.jobs.program.worker RUN_DIR [PYTHON].

PYTHON is the stack's Python, if the worker runs on another one.

It takes the fingerprint, starts the program, turns its output into the run's journal, and writes the result.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from conf import schema
from tracking.jobs.program import process, program_cupti, program_outcome, program_profile, program_python
from tracking.jobs.program.listener import Listener, uuids_of
from tracking.jobs.program.moments import Moment, now
from tracking.jobs.program.stamper import PIPE_BYTES, Stamper
from tracking.jobs.worker_command import LAUNCHER
from tracking.machine.environment import fingerprint, processes
from tracking.machine.stacks import check_promise
from tracking.record import Failure, Journal, documents, run_folder

READ_EVERY_SEC = 0.5  # reading and matching output takes cores from the program, which may print in bursts
LAST_WORDS_SEC = 5.0  # longest wait for output that a detached process holds open
NICENESS = 10  # of this process while it reads: it must not take cores from the program
AFTERWARDS_SEC = 1.0  # time for the program's children to end after it


class Stopped(BaseException):
    """A signal ends this process; `except Exception` does not catch it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def main(run_dir: Path, python: str | None = None) -> int:
    """Run the program of `run_dir` to its end. Returns 0, or 1 with the failure in result.json.

    A stop signal ends the program, and then kills this process. `python` is the stack's, if it is another one.
    """
    processes.adopt_orphans()
    try:
        return run(run_dir, python)
    except Stopped as stopped:
        process.end_all()
        signal.signal(stopped.signum, signal.SIG_DFL)
        os.kill(os.getpid(), stopped.signum)
        raise


def run(run_dir: Path, python: str | None) -> int:
    config = run_folder.read_plain_config(run_dir)
    try:
        facts = take_fingerprint(config, run_dir, python)
        log = Journal(run_dir / run_folder.JOURNAL)
        listener = Listener(config, log, run_dir / process.JOURNAL, uuids_of(config))
        code = listen(config, run_dir, listener, python)
        if listener.libraries or listener.frameworks:
            write_fingerprint(run_dir, program_outcome.seen_facts(facts, listener.libraries, listener.frameworks))
        failed = program_outcome.conclude(config, run_dir, log, listener, code)
        if config.profiled() and not failed:  # By now the result is complete.
            program_profile.write(config, run_dir, log, listener.began)
        return failed
    except schema.ConfigError as error:
        return program_outcome.fail(run_dir, Failure("bad_input", str(error)))
    except OSError as error:
        process.end_all()
        if not run_folder.is_full(error):
            raise
        return program_outcome.fail(run_dir, Failure("disk_full", f"could not write: {error}"))


def take_fingerprint(config: schema.RunConfig, run_dir: Path, python: str | None) -> dict[str, Any]:
    """Write the program's fingerprint and its tags. Raises ConfigError if it differs from the stack's promise."""
    environ = process.environment(config, run_dir, os.environ, python)
    facts = program_python.fingerprint(config, program_python.of(config, run_dir, environ, python), environ)
    write_fingerprint(run_dir, facts)
    documents.write_text(run_dir / run_folder.REQUIREMENTS, fingerprint.requirements(facts))
    check_promise(config.stack, facts)
    return facts


def write_fingerprint(run_dir: Path, facts: dict[str, Any]) -> None:
    documents.write_json(run_dir / run_folder.FINGERPRINT, facts)
    log = Journal(run_dir / run_folder.JOURNAL)
    log.tags(fingerprint.tags(facts))
    log.close()


def listen(config: schema.RunConfig, run_dir: Path, listener: Listener, python: str | None) -> int:
    """Start the program and listen until it ends. Returns its exit code, or -N for signal N. Raises ConfigError.

    In a search, a program that reaches its target is ended, which is a success.
    """
    tracing = program_cupti.Signal(config, run_dir) if program_cupti.is_traced(config) else None
    try:
        if tracing:
            program_cupti.prepare(run_dir)
        program = process.start(config, run_dir, python)
    except OSError as error:
        word = process.command(config, run_dir)[0]
        raise schema.ConfigError(
            f"program.command: {word}: {os.strerror(error.errno or errno.ENOENT)}. Next: give an installed program, or"
            " bash -c '...' for what needs a shell"
        ) from None
    stamper, ended = Stamper(program), Ended(program.pid)
    os.nice(NICENESS)
    while not ended.wait(READ_EVERY_SEC):
        if config.search.phase and listener.has_reached:
            listener.was_ended = True
            break
        hear(listener, stamper, until=now().clock_sec)
        if tracing:
            tracing.tick(listener.account.started)
        if listener.due():
            listener.look(process.descendants())
            process.reap(program.pid)
    program.poll()
    process.end_all(AFTERWARDS_SEC)
    hear_out(listener, stamper)
    listener.waited_sec = stamper.waited_sec
    stamper.end()
    listener.close(ended.at)
    return 0 if listener.was_ended else program.returncode


def hear(listener: Listener, stamper: Stamper, until: float) -> int:
    """Pass on available output until a piece is later than `until` (monotonic seconds). Returns later pieces' bytes."""
    late = 0
    while stamper.is_open and not late and stamper.is_ready(0):
        for piece in stamper.pieces(0):
            listener.hear(piece.content, piece.at)
            late += len(piece.content) if piece.at.clock_sec > until else 0
    return late


def hear_out(listener: Listener, stamper: Stamper) -> None:
    """Pass on all output from before the program's end, however much is unread.

    A detached process may hold the output open. If it is silent, the wait is LAST_WORDS_SEC. If it prints on, one full
    pipe is read, since that much of the program's own output may have been waiting.
    """
    until, late = now().clock_sec + LAST_WORDS_SEC, 0
    while stamper.is_open and late <= PIPE_BYTES and stamper.is_ready(LAST_WORDS_SEC):
        late += hear(listener, stamper, until)


class Ended:
    """Notes in a thread when the program ends, since its output may be read later."""

    def __init__(self, pid: int) -> None:
        self.at: Moment | None = None
        self._event = threading.Event()
        threading.Thread(target=self._wait, args=[pid], daemon=True).start()

    def _wait(self, pid: int) -> None:
        with suppress(ChildProcessError):  # Another thread reaped it.
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            self.at = now()
        self._event.set()

    def wait(self, patience_sec: float) -> bool:
        """Whether the program ends within `patience_sec`."""
        return self._event.wait(patience_sec)


def stop_on_signals(launcher: int) -> None:
    """Raise Stopped on signals that end a process; the kernel sends SIGTERM when the launcher dies."""

    def stop(signum: int, frame: FrameType | None) -> None:
        for number in process.STOPPING:
            signal.signal(number, signal.SIG_IGN)
        raise Stopped(signum)

    for number in process.STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
    ctypes.CDLL(None, use_errno=True).prctl(process.PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != launcher:  # It died before the call.
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    stop_on_signals(int(os.environ.get(LAUNCHER, os.getppid())))
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:3]))
