"""Runs an alert's command: for a limited time, without secrets, and without keeping all that it writes."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Event
from typing import Any

from tracking.base import secrets

POLL_SEC = 0.1
CHUNK_BYTES = 1 << 16
MOST_BYTES, MOST_SHOWN = 4096, 500  # the end of standard error: bytes that are kept, characters that are shown
MOST_TEXT = 4000  # characters of a text in a variable; Linux starts no program with more than 128 KiB in one


def run(words: Sequence[str], content: Mapping[str, Any], timeout_sec: float, stop: Event) -> None:
    """Run the command with `content` as JSON on its standard input.

    Raises OSError if it does not start, RuntimeError if it fails, takes too long, or `stop` is set meanwhile.
    """
    until = time.monotonic() + timeout_sec
    with os.fdopen(os.memfd_create("alert"), "w+b") as given:  # A pipe would wait for a command that does not read.
        given.write(json.dumps(content).encode())
        given.seek(0)
        with subprocess.Popen(
            list(words), stdin=given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(content),
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                errors = _last_words(process, until, stop)
            except TimeoutError:
                raise RuntimeError(f"it took longer than alert.timeout_sec={timeout_sec:g}, and was killed") from None
            finally:
                with suppress(ProcessLookupError):  # ends its leftover children, too
                    os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {secrets.redact(errors.strip())[-MOST_SHOWN:]}")


def _last_words(process: subprocess.Popen[bytes], until: float, stop: Event) -> str:
    """The end of what a process writes on standard error, until it exits. Raises TimeoutError, RuntimeError."""
    assert process.stderr is not None
    tail, readable = b"", [process.stderr]
    while time.monotonic() < until:
        if stop.is_set():
            raise RuntimeError("it was still running when the launcher was stopped, and was killed")
        ended = process.poll() is not None  # A child that outlives it may keep standard error open.
        if select.select(readable, [], [], 0 if ended else POLL_SEC)[0]:
            chunk = os.read(process.stderr.fileno(), CHUNK_BYTES)
            tail = (tail + chunk)[-MOST_BYTES:]
            readable = readable if chunk else []
        elif ended:
            return tail.decode(errors="replace")
    raise TimeoutError


def environment(content: Mapping[str, Any]) -> dict[str, str]:
    """The command's variables: the inherited ones without secrets and MLflow's, and the alert's short form."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not secrets.is_secret_name(name)
        and not name.startswith(("MLFLOW_", "_MLFLOW_"))
        and secrets.redact(value) == value
    }
    return kept | {
        "TIMETRIAL_ALERT": str(content["alert"]),
        "TIMETRIAL_ALERT_TEXT": str(content["text"]).replace("\0", "")[:MOST_TEXT],
        "TIMETRIAL_ALERT_FOLDER": str(content["folder"]),
    }
