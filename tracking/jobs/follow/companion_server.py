"""The companions of a script's runs: python -m tracking.jobs.follow.companion_server SOCKET.

This process imports once what companions need, and forks one for each run that the script requests. A script that
fits a hundred times would otherwise wait for a hundred imports. It exits with its script; companions keep running.

It starts no threads, since a fork does not copy them.
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

MOST_BYTES = 1 << 20  # most bytes of a request, which holds the script's environment
NUM_DESCRIPTORS = 2  # the pipe for READY, and on the head node the folder's lock


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
            except BaseException:  # logged here: the fork must not return into the server's callers
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(code)
        for descriptor in descriptors:
            os.close(descriptor)


def become(request: dict[str, Any], output: int) -> int:
    """Run as the companion of the requested run. Its open descriptor holds the lock."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    folder = Path(request["folder"])
    log = os.open(folder / node_records.companion_log(request["node"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(output, 1)
    os.dup2(log, 2)
    for descriptor in (output, log):
        os.close(descriptor)
    os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    if request["node"]:
        return companion.sample_node(folder, request["node"], request["pid"], request["gpu_uuids"])
    return companion.main(folder, request["pid"], request["root"])


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # They are meant for the script.
    serve(socket.socket(fileno=int(sys.argv[1])))
