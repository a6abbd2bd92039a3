"""A fork begins only while its supervisor wants it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.support.commands import environment
from trainers.loop.worker import fork_server

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


@pytest.mark.parametrize(("compiles", "num_gpus", "imported"), [(True, 2, True), (True, -1, False), (False, 2, False)])
def test_the_compiler_is_imported_where_that_does_not_call_cuda(
    compiles: bool, num_gpus: int, imported: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = SimpleNamespace(compiled=lambda: compiles)
    monkeypatch.setattr(fork_server.run_folder, "read_config", lambda folder: config)
    monkeypatch.setattr(fork_server, "limit_threads", lambda config: None)
    monkeypatch.setattr(fork_server, "import_training", lambda folder: None)
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: num_gpus)
    assert fork_server.import_all(tmp_path) == imported
