"""Serves a sweep: imports once, and forks a worker for each run that is requested over a socket.

The command is `python -m trainers.loop.worker --fork LISTENER LIFELINE RUN_DIR`. LISTENER is the descriptor of the
socket that the server listens on. LIFELINE is a descriptor whose other end the launcher holds. RUN_DIR is the run that
waits for the server. The server computes nothing, starts no threads and never initialises CUDA, so a fork is as good as
a new worker.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracking.jobs.handover import BEGAN, ENDED, STALE, Inheritance
from tracking.machine.environment import Collector
from tracking.record import Journal, part_of_start, run_folder
from trainers.loop.worker.agent import import_training
from trainers.loop.worker.signal_deaths import die_with, outlive_parent
from trainers.loop.worker.sources import Sources, begun_ns
from trainers.loop.worker.threads import VARIABLES, limit_threads

MAX_BYTES = 1_048_576  # of a request; most of it is the environment's variables
MOST_DESCRIPTORS = 2


@dataclass(frozen=True)
class Fork:
    """A running worker: its process, a descriptor that becomes readable when it exits, its supervisor's channel."""

    pid: int
    ending: int
    channel: socket.socket


def serve(listening: int, lifeline: int, first_run: Path) -> tuple[Path, Collector | None] | None:
    """Serve requests. In each fork return its run's folder; in the server return None at its end.

    The first run's fork also gets its fingerprint's collector, whose commands have run during the imports.

    The server accepts no further run once its launcher is gone or its sources have changed. It ends after its last
    fork.
    """
    log = Journal(first_run / run_folder.JOURNAL)
    sources, before, collector = Sources(begun_ns()), dict(os.environ), Collector()
    with sources.noted(), part_of_start(log, "import"):  # The first run waits for these imports.
        compiles = import_all(first_run)
    log.close()
    collector.wait()
    outlive_parent()  # Until here the server dies with the supervisor that waits for it; now the lifeline ends it.
    server = Server(socket.socket(fileno=listening), lifeline, sources, before, import_compiler if compiles else None)
    run = server.run()
    return None if run is None else (run, collector if run == first_run else None)


class Server:
    """The server, after the imports that its forks need.

    `before` are the environment variables before these imports. `import_later` is called after the first fork, so that
    the first run does not wait for it.
    """

    def __init__(
        self, listener: socket.socket, lifeline: int, sources: Sources, before: dict[str, str],
        import_later: Callable[[], None] | None,
    ) -> None:  # fmt: skip
        self._listener: socket.socket | None = listener
        self._lifeline, self._sources, self._before, self._import_later = lifeline, sources, before, import_later
        self._forks: list[Fork] = []

    def run(self) -> Path | None:
        """Accept requests and wait for forks; returns what `serve` returns."""
        while self._listener or self._forks:
            fork_descriptors = [fd for fork in self._forks for fd in (fork.ending, fork.channel.fileno())]
            listening = [self._listener.fileno(), self._lifeline] if self._listener else []
            ready = wait_readable([*listening, *fork_descriptors])
            if self._listener and self._lifeline in ready:
                self._stop_listening()  # Supervisors end the forks, and may let them save first.
            for fork in [fork for fork in self._forks if ready & {fork.ending, fork.channel.fileno()}]:
                finish(fork, exited=fork.ending in ready)
                self._forks.remove(fork)
            if self._listener and self._listener.fileno() in ready and (folder := self._accept()):
                return folder
            if self._import_later and self._forks:
                self._import_later()
                self._import_later = None
        return None

    def _accept(self) -> Path | None:
        """Take one request and fork; return the folder of the run in the fork, None in the server."""
        assert self._listener
        channel, _ = self._listener.accept()
        # Read first: closing a channel with unread data resets it, and the peer may lose our answer.
        message, descriptors, _, _ = socket.recv_fds(channel, MAX_BYTES, MOST_DESCRIPTORS)
        if self._sources.have_changed():
            self._stop_listening()  # The next run starts a new server; this one only waits for its forks.
            with channel, suppress(OSError):  # The supervisor may be gone.
                channel.send(STALE.encode())
        elif message:
            request, server, pid = json.loads(message), os.getpid(), os.fork()
            if not pid:
                return self._enter_fork(request, descriptors, server, channel)
            self._forks.append(Fork(pid, os.pidfd_open(pid), channel))
        else:
            channel.close()
        for descriptor in descriptors:
            os.close(descriptor)
        return None

    def _stop_listening(self) -> None:
        assert self._listener
        self._listener.close()
        self._listener = None

    def _enter_fork(
        self, request: dict[str, Any], descriptors: list[int], server: int, channel: socket.socket
    ) -> Path:  # fmt: skip
        """In the fork, close the server's descriptors and become a worker; return the folder of its run."""
        assert self._listener
        self._listener.close()
        for fork in self._forks:
            fork.channel.close()
            os.close(fork.ending)
        os.close(self._lifeline)
        request["environ"] |= set_since(self._before)
        return become_worker(request, descriptors, server, channel)


def set_since(before: dict[str, str]) -> dict[str, str]:
    """Return the variables that imports have set since `before`, except those that each worker sets itself.

    Lightning sets PYTORCH_NVML_BASED_CUDA_CHECK as it is imported. In a fork without it, torchrun's agent would call
    into CUDA, and its ranks could not use a GPU.
    """
    return {name: value for name, value in os.environ.items() if name not in VARIABLES and before.get(name) != value}


def import_all(run_dir: Path) -> bool:
    """Import what every run needs, and return whether runs compile on GPUs.

    Raises if an import fails; a worker's `import_training` would start again instead.

    Each fork imports its own workload: that takes 0.1 s, and may start threads, which a fork would lack.
    """
    config = run_folder.read_config(run_dir)
    limit_threads(config)
    import_training(None)
    import torch
    import torch.distributed.elastic.multiprocessing.errors
    import torch.distributed.launcher.api

    assert not torch.cuda.is_initialized(), "a forked process cannot use CUDA once its parent has"
    return config.compiled() and torch.cuda._device_count_nvml() > 0


def import_compiler() -> None:
    """Import Inductor, which takes each fork a second or two.

    It asks whether there is a GPU. Where NVML cannot tell, as for a MIG instance, PyTorch would ask CUDA, and then
    forks could not use a GPU.
    """
    import torch._inductor.compile_fx  # noqa: F401


def wait_readable(descriptors: list[int]) -> set[int]:
    """Wait, and return the descriptors that became readable or whose other end was closed."""
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poller.poll()}


def finish(fork: Fork, exited: bool) -> None:
    """Report a fork's exit code to its supervisor; if it has not exited, its supervisor is gone: kill it first."""
    if not exited:
        kill(fork)
    _, status = os.waitpid(fork.pid, 0)
    with suppress(OSError):
        fork.channel.send(f"{ENDED} {os.waitstatus_to_exitcode(status)}".encode())
    fork.channel.close()
    os.close(fork.ending)


def kill(fork: Fork) -> None:
    for send in (os.killpg, os.kill):  # The fork may not have its own process group yet.
        with suppress(ProcessLookupError):
            send(fork.pid, signal.SIGKILL)


def become_worker(request: dict[str, Any], descriptors: list[int], server: int, channel: socket.socket) -> Path:
    """Give a fork its own session, cores, variables, streams and random numbers; return the folder of its run."""
    os.setsid()
    die_with(server)
    try:
        with channel:
            channel.send(f"{BEGAN} {os.getpid()}".encode())
    except OSError:  # The supervisor is gone or has withdrawn the request, so the run must not start.
        os._exit(1)
    Inheritance(request["cores"], request["memory"] and tuple(request["memory"])).take()
    os.environ.clear()
    os.environ.update(request["environ"])
    output, *locks = descriptors
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    for descriptor in locks:  # the lock of the run's folder, which all processes of the run hold
        os.set_inheritable(descriptor, True)
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    inductor: Any = sys.modules.get("torch._inductor.config")
    if inductor:  # Inductor has counted the server's cores.
        inductor.compile_threads = inductor.decide_compile_threads()
    sys.argv[1:] = [request["run"]]
    return Path(request["run"])
