"""The events of a launch for a program that drives it: one JSON object a line, alone on standard output.

docs/driven.md lists the events; their schema is docs/events.schema.json.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from tracking.base import secrets
from tracking.base.console import open_closed_streams

OPTION = "--json"
VERSION = 1


class EventStream:
    """Writes the events of a launch to a file descriptor; without a descriptor, does nothing."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = descriptor

    @classmethod
    def from_command_line(cls, argv: list[str]) -> EventStream:
        """Take `--json` out of a command line. With it, events go to standard output and all else to stderr.

        Standard streams that are closed are opened first.
        """
        open_closed_streams()
        if OPTION not in argv:
            return cls()
        argv[:] = [word for word in argv if word != OPTION]
        descriptor = os.dup(1)
        os.dup2(2, 1)
        return cls(descriptor)

    def tell(self, event: str, **fields: Any) -> None:
        """Write an event. Its numbers are finite or None (else ValueError).

        If the reader closes the pipe, later events are discarded. The training continues.
        """
        if self._descriptor is None:
            return
        content = {"event": event, "version": VERSION, "time_ms": time.time_ns() // 1_000_000, **fields}
        line = json.dumps(secrets.redacted(content), allow_nan=False, default=str) + "\n"
        try:
            data = line.encode()
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            self._descriptor = None
