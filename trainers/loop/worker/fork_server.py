"""A worker that has its imports behind it, and forks one for each run of a search that is asked for over a socket.

`python -m trainers.loop.worker --fork LISTENER LIFELINE RUN_DIR`: descriptors of the socket and of a pipe that its
launcher holds open, and a run like those to come. It computes nothing and has no threads of its own, and CUDA is never
initialised in it: so a fork is what a new worker would be.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracking.jobs.handover import BEGAN, ENDED, STALE, Inheritance
from tracking.record import Journal, run_folder
from trainers.loop.start import part_of_start
from trainers.loop.worker.agent import import_training, limit_threads
from trainers.loop.worker.signal_deaths import die_with, outlive_parent
from trainers.loop.worker.sources import Sources

MAX_BYTES = 1_048_576  # of a request, most of which are the variables of its environment
MOST_DESCRIPTORS = 2


@dataclass(frozen=True)
class Fork:
    """A worker under way: its process, a descriptor that tells of its end, and the channel of its supervisor."""

    pid: int
    ending: int
    channel: socket.socket


def serve(listening: int, lifeline: int, like: Path) -> Path | None:
    """In a fork, the folder of its run. In the server None, when its launcher is gone, or its sources have changed and
    its last fork has ended."""
    log = Journal(like / run_folder.JOURNAL)
    sources = Sources()
    with sources.noted(), part_of_start(log, "import"):  # It is started for that run, which waits for it.
        import_all(like)
    log.close()
    outlive_parent()  # Until here it dies with the supervisor that waits for it; from here on it has a lifeline.
    return Server(socket.socket(fileno=listening), lifeline, sources).run()


class Server:
    """A process that has imported what its forks need."""

    def __init__(self, listener: socket.socket, lifeline: int, sources: Sources) -> None:
        self._listener: socket.socket | None = listener
        self._lifeline, self._sources = lifeline, sources
        self._forks: list[Fork] = []

    def run(self) -> Path | None:
        """What `serve` returns."""
        while self._listener or self._forks:
            of_forks = [descriptor for fork in self._forks for descriptor in (fork.ending, fork.channel.fileno())]
            listening = [self._listener.fileno()] if self._listener else []
            ready = waited([*listening, *of_forks], self._lifeline)
            if self._lifeline in ready:
                for fork in self._forks:
                    kill(fork)
                return None
            for fork in [fork for fork in self._forks if ready & {fork.ending, fork.channel.fileno()}]:
                end(fork, told=fork.ending in ready)
                self._forks.remove(fork)
            if ready.intersection(listening) and (folder := self._accept()):
                return folder
        return None

    def _accept(self) -> Path | None:
        """Take one request; in its fork, the folder of its run."""
        assert self._listener
        channel, _ = self._listener.accept()
        # To close a channel with something unread would reset it, and lose an answer on its way.
        words, descriptors, _, _ = socket.recv_fds(channel, MAX_BYTES, MOST_DESCRIPTORS)
        if self._sources.have_changed():
            self._listener.close()  # The next run starts another server; this one waits for its forks.
            self._listener = None
            with channel, suppress(OSError):  # a supervisor that has gone
                channel.send(STALE.encode())
        elif words:
            server, pid = os.getpid(), os.fork()
            if not pid:
                return self._leave(words, descriptors, server, channel)
            self._forks.append(Fork(pid, os.pidfd_open(pid), channel))
        else:
            channel.close()
        for descriptor in descriptors:
            os.close(descriptor)
        return None

    def _leave(self, words: bytes, descriptors: list[int], server: int, channel: socket.socket) -> Path:
        """Be a fork, which holds nothing of the server's."""
        assert self._listener
        self._listener.close()
        for fork in self._forks:
            fork.channel.close()
            os.close(fork.ending)
        os.close(self._lifeline)
        return become(json.loads(words), descriptors, server, channel)


def import_all(like: Path) -> None:
    """Import what a run like this one needs. Nothing is left out by a second start, as `import_training` would do."""
    config = run_folder.read_config(like)
    limit_threads(config)
    import_training(config, None)
    import torch
    import torch.distributed.elastic.multiprocessing.errors
    import torch.distributed.launcher.api

    from trainers.workload import load_workload

    if config.model.workload.startswith("trainers."):  # A workload of the user's own may start what survives no fork.
        load_workload(config)
    assert not torch.cuda.is_initialized(), "a forked process cannot use CUDA once its parent has"


def waited(descriptors: list[int], lifeline: int) -> set[int]:
    """Those of the descriptors that there is something to read of, once there is; and the lifeline when it is cut."""
    poller = select.poll()
    poller.register(lifeline, 0)
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poller.poll()}


def end(fork: Fork, told: bool) -> None:
    """Tell how a fork has ended; one whose supervisor is gone is killed first."""
    if not told:
        kill(fork)
    _, status = os.waitpid(fork.pid, 0)
    with suppress(OSError):
        fork.channel.send(f"{ENDED} {os.waitstatus_to_exitcode(status)}".encode())
    fork.channel.close()
    os.close(fork.ending)


def kill(fork: Fork) -> None:
    for send in (os.killpg, os.kill):  # It may have no group of its own yet.
        with suppress(ProcessLookupError):
            send(fork.pid, signal.SIGKILL)


def become(request: dict[str, Any], descriptors: list[int], server: int, channel: socket.socket) -> Path:
    """Give a fork what a new worker has: session, cores, variables, streams, and random numbers of its own."""
    os.setsid()
    die_with(server)
    try:
        with channel:
            channel.send(f"{BEGAN} {os.getpid()}".encode())
    except OSError:  # Its supervisor has gone, or has taken the request back: nothing of the run may happen any more.
        os._exit(1)
    Inheritance(request["cores"], request["memory"] and tuple(request["memory"])).take()
    os.environ.clear()
    os.environ.update(request["environ"])
    output, *kept = descriptors
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    for descriptor in kept:  # the lock of the run's folder, which all processes of the run hold
        os.set_inheritable(descriptor, True)
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    inductor: Any = sys.modules.get("torch._inductor.config")
    if inductor:  # It has counted the cores of the server.
        inductor.compile_threads = inductor.decide_compile_threads()
    sys.argv[1:] = [request["run"]]
    return Path(request["run"])
