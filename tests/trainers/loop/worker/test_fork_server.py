"""A fork begins only while its supervisor wants it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.commands import environment

pytestmark = pytest.mark.slow

FORK = """
import os, socket, sys
from dataclasses import asdict
from tracking.jobs.handover import Inheritance
from trainers.loop.worker import fork_server

supervisors, channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if sys.argv[1] == "withdrawn":
    supervisors.shutdown(socket.SHUT_RD)
request = {"run": "folder", "environ": dict(os.environ), **asdict(Inheritance.own())}
print(fork_server.become_worker(request, [os.dup(1)], os.getppid(), channel), supervisors.recv(5).decode())
"""


@pytest.mark.parametrize(("request_is", "told"), [("there", (0, "folder began\n")), ("withdrawn", (1, ""))])
def test_a_fork_whose_request_was_withdrawn_ends_before_it_touches_its_run(
    request_is: str, told: tuple[int, str]
) -> None:
    command = [sys.executable, "-c", FORK, request_is]
    fork = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert (fork.returncode, fork.stdout) == told, fork.stderr
