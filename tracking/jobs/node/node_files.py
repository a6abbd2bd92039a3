"""The launchers of a run's machines see each other by files in the runs_dir that they share.

Each rewrites its own file twice a second. A node is alive as long as its file changes, by the reader's clock. Clocks of
different machines are compared only to check that they are set.

The address of node 0 is the given one, or its own on the route to the other nodes.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from conf.schema import ConfigError
from tracking.record import Failure, documents, run_folder
from tracking.request.node_options import address

BEAT_SEC = 0.5
LOST_SEC = 10.0  # a launcher whose file has not changed for this long is gone
GAP_SEC = 1.0  # after a longer gap between two reads, this job was suspended or its file server silent
ANY_PORT = 9  # Connecting a datagram socket sends nothing, so no port needs to be open.


@dataclass
class NodeState:
    """A node's state, as it writes it. `known`: tokens of the launchers that node 0 has accepted."""

    name: str
    runs_dir: str
    asked: dict[str, Any]  # options that must be equal on all nodes
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    beat: int = 0
    time_ms: int = 0  # the node's clock at this beat
    known: list[str] = field(default_factory=list)
    folder: str = ""  # the run folder's name, once node 0 has made it
    rendezvous: str = ""  # HOST:PORT that node 0 has chosen, unless the user gave one
    address: str = ""  # the address by which the scheduler reaches the node
    boot_id: str = ""  # the machine's
    preparing: bool = False  # it fetches an image or makes an environment; on node 0 also: another node does
    ended: bool = False
    failure: dict[str, Any] | None = None  # why the node failed, if it did


class OwnFile:
    """Keeps writing this node's state until closed."""

    def __init__(self, path: Path, state: NodeState) -> None:
        self.state = state
        self._path = path
        self._closed = threading.Event()
        self._writing = threading.Lock()
        self.write()
        self._thread = threading.Thread(target=self._run, name="node-file", daemon=True)
        self._thread.start()

    def write(self) -> None:
        """Write the state now. Raises OSError."""
        with self._writing:
            self._write()

    def write_last(self) -> None:
        """Write the last state, and nothing after it: a reader may then remove the folder. Raises OSError."""
        with self._writing:
            self._write()
            self._closed.set()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._closed.wait(BEAT_SEC):
            with self._writing, suppress(OSError):  # a full disk may have room again
                if not self._closed.is_set():
                    self._write()

    def _write(self) -> None:
        self.state.beat += 1
        self.state.time_ms = run_folder.now_ms()
        documents.write_json(self._path, asdict(self.state))


class Peer:
    """Another node, as its file describes it. Unless `fresh`, the file may be an earlier launcher's."""

    def __init__(self, rank: int, path: Path, fresh: bool = False) -> None:
        self.rank = rank
        self._path = path
        self._first = ("", 0) if fresh else None  # the first heartbeat, perhaps an earlier launcher's
        self._latest: NodeState | None = None
        self._changed = self._read_at = time.monotonic()
        self.apart_sec = 0.0  # seconds that its clock is ahead of this machine's, including the delay of its file

    def state(self) -> NodeState | None:
        """The latest state, if a launcher has written it since we began to watch; else None."""
        try:
            state = NodeState(**documents.read_json(self._path))
        except (OSError, ValueError, TypeError):
            return self._latest
        finally:
            self._leave_out_gap()
        heartbeat = (state.token, state.beat)
        if self._first is None:
            self._first = heartbeat
        if heartbeat != self._first and (self._latest is None or heartbeat != (self._latest.token, self._latest.beat)):
            self._latest, self._changed = state, time.monotonic()
            self.apart_sec = (state.time_ms - run_folder.now_ms()) / 1e3
        return self._latest

    def prepares(self) -> bool:
        """Whether the node is alive and not ready to train yet."""
        state = self.state()
        return state is not None and state.preparing and self.trouble() is None

    def _leave_out_gap(self) -> None:
        """Do not count a gap in our own reads as the node's silence: it may have written then."""
        now = time.monotonic()
        gap_sec = now - self._read_at
        self._changed += gap_sec if gap_sec > GAP_SEC else 0.0
        self._read_at = now

    def trouble(self) -> Failure | None:
        """Why the run cannot continue with this node; None if it can."""
        state = self.state()
        assert state is not None
        if state.failure:
            return Failure(**state.failure)
        if not state.ended and time.monotonic() - self._changed > LOST_SEC:
            return Failure("error", f"node {state.name} (node_rank={self.rank}) is gone: silent for {LOST_SEC:g} s")
        return None


def rendezvous(own: NodeState, others: Sequence[NodeState]) -> str:
    """This node's address on the route to the second node, and a free port. Raises ConfigError."""
    host = own_address(others[0].address or others[0].name)
    if host.startswith("127.") and any(state.boot_id != own.boot_id for state in others):
        names = ", ".join(f"{state.name} at {state.address or state.name}" for state in others)
        raise ConfigError(
            f"node {own.name}: its address on the route to the other nodes ({names}) is {host}, which they cannot"
            " reach. Next: correct this node's name in DNS or /etc/hosts"
        )
    with socket.socket() as listening:
        listening.bind((host, 0))
        return f"{host}:{listening.getsockname()[1]}"


def own_address(host: str) -> str:
    """This machine's address on the route to a host. Raises ConfigError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect((host, ANY_PORT))
        except OSError as error:
            raise ConfigError(f"no route to the node at {host}: {error}. Next: check the nodes' network") from None
        return str(asking.getsockname()[0])


def check_address(rendezvous: str) -> None:
    """Raise ConfigError if node 0 cannot be reached at this address."""
    host = address(rendezvous)[0]
    try:
        ip = socket.gethostbyname(host)
    except OSError as error:
        raise ConfigError(
            f"rendezvous={rendezvous}: {host} is unknown here ({error}). Next: give an IP address"
        ) from None
    if ip.startswith("127.0.1."):
        raise ConfigError(
            f"rendezvous={rendezvous}: {host} is {ip} here, which other machines cannot reach. Next: give this"
            " machine's IP address in their network"
        )


def check_own(rendezvous: str) -> None:
    """Raise ConfigError if this machine cannot listen at this address."""
    host, port = address(rendezvous)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"rendezvous={rendezvous}: node_rank=0 cannot listen there ({error.strerror}). Next: give an address"
                " of this machine and a port that is free"
            ) from None
