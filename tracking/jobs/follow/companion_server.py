"""The companions of a script's runs: python -m tracking.jobs.follow.companion_server SOCKET.

This process has imported what a companion needs, and forks one for each run that the socket's other end asks for: a
script that fits a hundred times would else wait for as many imports. It ends with its script; companions go on.

It starts no thread: what is forked would lack it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from tracking.jobs.follow import companion
from tracking.record import node_records

MOST_BYTES = 1 << 20  # of a request: the script's variables
NUM_DESCRIPTORS = 2  # where the companion says that it watches, and on the head node the folder's lock


def serve(requests: socket.socket) -> None:
    """Fork a companion for each request, until the script has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel reaps them.
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, NUM_DESCRIPTORS)
        if not message:
            return
        if os.fork() == 0:
            requests.close()
            code = 1
            try:
                code = become(json.loads(message), descriptors[0])
            except BaseException:  # into the log; what called `serve` is not the companion's
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(code)
        for descriptor in descriptors:
            os.close(descriptor)


def become(asked: dict[str, Any], output: int) -> int:
    """Be the companion of the run that is asked for. The lock is held by its open descriptor alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    folder = Path(asked["folder"])
    log = os.open(folder / node_records.companion_log(asked["node"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(output, 1)
    os.dup2(log, 2)
    for descriptor in (output, log):
        os.close(descriptor)
    os.setsid()
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    if asked["node"]:
        return companion.sample_node(folder, asked["node"], asked["pid"], asked["gpu_uuids"])
    return companion.main(folder, asked["pid"], asked["root"])


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # They are meant for the script.
    serve(socket.socket(fileno=int(sys.argv[1])))
