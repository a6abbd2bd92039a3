"""One of a run's machines: it finds the others, watches them while it trains, and ends if one fails.

Node 0 makes the run folder; the others join it. This module does not depend on who starts the launchers: a user or a
scheduler.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from conf.schema import ConfigError, RunConfig
from tracking.base.installation import LAUNCH
from tracking.jobs.node import node_files
from tracking.jobs.node.node_files import LOST_SEC, NodeState, OwnFile, Peer
from tracking.record import Failure, node_records, run_folder

POLL_SEC = 0.1
MAX_APART_SEC = 120.0  # between two clocks; a file system's cache may delay a file by a minute
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class NodeFailed(Exception):
    """Another node of the run has failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Nodes:
    """All nodes of a run, from one of them. `meet` first; then `announce` on node 0, `folder` on the others.

    If a scheduler started them, they look for each other in `place`, a folder inside the run's. Otherwise they look in
    a folder of runs_dir that is named after their rendezvous. `address` is how the scheduler reaches this node.
    """

    def __init__(self, config: RunConfig, place: Path | None = None, address: str = "") -> None:
        self._config = config
        self._root = place.parent.parent if place else Path(config.runs_dir).resolve()
        self._place = place or self._root / f".nodes-{str(config.rendezvous).replace(':', '-')}"
        self._place.mkdir(parents=True, exist_ok=True)
        options = {
            "nodes": config.nodes, "gpus": config.gpus, "cpu_processes": config.cpu_processes,
            "the measured options (config_hash)": config.config_hash(),
        }  # fmt: skip
        boot_id = BOOT_ID.read_text(encoding="utf-8").strip() if BOOT_ID.exists() else ""
        state = NodeState(node_records.name(), str(self._root), options, address=address, boot_id=boot_id)
        state.preparing = True  # until it meets the others
        self._own = OwnFile(self._path(config.node_rank), state)
        others = [0] if config.node_rank else range(1, config.nodes)
        # The run's own folder has no files of earlier launchers.
        self._peers = [Peer(rank, self._path(rank), fresh=place is not None) for rank in others]

    @property
    def names(self) -> list[str]:
        """The names of this node and, on node 0, of all others in the order of their ranks."""
        return [self._own.state.name, *(state.name for peer in self._peers if (state := peer.state()))]

    def meet(self) -> None:
        """Wait for the others: all of them on node 0, elsewhere node 0's folder. Raises ConfigError.

        A node that still prepares is waited for, since an image may take long to fetch.
        """
        deadline = time.monotonic() + self._config.rendezvous_timeout_sec
        self._own.state.preparing = False
        while not self._complete():
            if is_late := any(peer.prepares() for peer in self._peers):
                deadline = time.monotonic() + self._config.rendezvous_timeout_sec
            self._own.state.preparing = is_late and self._config.node_rank == 0  # the others see only node 0
            if time.monotonic() > deadline:
                raise ConfigError(self._missing())
            time.sleep(POLL_SEC)

    def announce(self, folder: Path) -> None:
        """Tell the others which folder node 0 has made for the run. Raises OSError, and ConfigError for no route."""
        if self._config.rendezvous is None:
            states = [state for peer in self._peers if (state := peer.state())]
            self._own.state.rendezvous = node_files.rendezvous(self._own.state, states)
        self._own.state.known = [state.token for peer in self._peers if (state := peer.state())]
        self._own.state.folder = folder.name
        self._own.write()

    def folder(self) -> Path:
        """The run folder that node 0 has made. Raises ConfigError if it is not visible here."""
        state = self._peers[0].state()
        assert state is not None
        path = self._root / state.folder
        deadline = time.monotonic() + self._config.rendezvous_timeout_sec
        while not (path / run_folder.CONFIG).exists():
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"runs_dir={self._root}: {state.folder} is missing. {state.name} made it in {state.runs_dir}."
                    " Next: give a runs_dir that all nodes share"
                )
            time.sleep(POLL_SEC)
        return path

    @property
    def rendezvous(self) -> str:
        """HOST:PORT that was given, or that node 0 has chosen and announced."""
        first = self._peers[0].state() if self._config.node_rank else self._own.state
        assert first is not None
        return self._config.rendezvous or first.rendezvous

    def check(self) -> None:
        """Raise NodeFailed if another node has failed or is gone."""
        for peer in self._peers:
            if failure := peer.trouble():
                raise NodeFailed(failure)

    def cause(self, failure: Failure | None) -> Failure | None:
        """This node's failure, or the peer's failure that caused it: an exchange breaks when a peer dies."""
        deadline = time.monotonic() + LOST_SEC + 2
        while failure is not None and failure.kind == "error" and time.monotonic() < deadline:
            troubles = [trouble for peer in self._peers if (trouble := peer.trouble())]
            if troubles:
                return next((other for other in troubles if other.kind != "error"), troubles[0])
            time.sleep(POLL_SEC)
        return failure

    def end(self, failure: Failure | None) -> None:
        """Tell the others how this node has ended."""
        self._own.state.ended = True
        if failure is not None:
            self._own.state.failure = asdict(failure)
        with suppress(OSError):
            self._own.write_last()

    def wait_for_ends(self) -> None:
        """Wait until the others have written their last state, or one of them has failed or is gone."""
        deadline = time.monotonic() + LOST_SEC + 2
        while time.monotonic() < deadline:
            states = [peer.state() for peer in self._peers]
            if all(state is None or state.ended for state in states) or any(
                p.trouble() for p in self._peers if p.state()
            ):
                return
            time.sleep(POLL_SEC)

    def close(self, last: bool = True) -> None:
        """Stop writing this node's state. If it is the `last` time, node 0 also removes all nodes' files."""
        self._own.close()
        if last and self._config.node_rank == 0:
            shutil.rmtree(self._place, ignore_errors=True)

    def _path(self, rank: int) -> Path:
        return self._place / f"{rank}.json"

    def _complete(self) -> bool:
        own, states = self._own.state, [peer.state() for peer in self._peers]
        self._compare_clocks()
        if self._config.node_rank:
            self._compare([state for state in states if state])
            return any(state and state.folder and own.token in state.known for state in states)
        present = [state for state in states if state is not None]
        self._compare(present)
        return len(present) == len(states) and not any(state.preparing for state in present)

    def _compare_clocks(self) -> None:
        for peer in self._peers:
            state = peer.state()
            if state and abs(peer.apart_sec) > MAX_APART_SEC:
                where = "ahead of" if peer.apart_sec > 0 else "behind"
                raise ConfigError(
                    f"the clock of {state.name} is {abs(peer.apart_sec):.0f} s {where} that of {self._own.state.name},"
                    " so their records would not match. Next: set both (chrony or systemd-timesyncd)"
                )

    def _compare(self, states: list[NodeState]) -> None:
        own = self._own.state
        for state in states:
            if state.failure and not state.folder:
                raise ConfigError(str(state.failure["message"]))
            if state.name == own.name:
                raise ConfigError(
                    f"two nodes are called {own.name}. Next: give one another name: {node_records.NAME}=NAME {LAUNCH}"
                )
            for key, value in own.asked.items():
                if state.asked.get(key) != value:
                    raise ConfigError(
                        f"{key}: {value} on {own.name}, {state.asked.get(key)} on {state.name}. Next: give all the same"
                    )

    def _missing(self) -> str:
        missing = [str(peer.rank) for peer in self._peers if not (state := peer.state()) or state.preparing]
        num_present = self._config.nodes - len(missing)
        subject = f"{num_present} of {self._config.nodes} nodes are" if not self._config.node_rank else "node 0 is not"
        return (
            f"nodes={self._config.nodes}: {subject} seen after rendezvous_timeout_sec="
            f"{self._config.rendezvous_timeout_sec:g} (missing: node_rank={','.join(missing) or '0'}). This node,"
            f" {self._own.state.name}, looks in {self._place}; on every node it has to be"
            " the same folder of a shared file system. Next: give runs_dir=FOLDER, and start all nodes"
        )


@contextmanager
def met(
    config: RunConfig, place: Path | None = None, address: str = "", check: Callable[[], None] = lambda: None
) -> Iterator[Nodes]:
    """The nodes of a run, once `check` has passed on this node and all have met. A slow check does not time out.

    Raises ConfigError, after sending its message to the other nodes.
    """
    if config.rendezvous is not None:
        node_files.check_address(config.rendezvous)
        if config.node_rank == 0:
            node_files.check_own(config.rendezvous)
    all_nodes = Nodes(config, place, address)
    try:
        try:
            check()
            all_nodes.meet()
        except ConfigError as error:
            all_nodes.end(Failure("bad_input", str(error)))
            all_nodes.wait_for_ends()  # otherwise the folder would be removed before they read it
            raise
        yield all_nodes
    finally:
        all_nodes.close()


@contextmanager
def preparing(configs: Sequence[RunConfig]) -> Iterator[None]:
    """While this node prepares in the block, the other nodes of a run that was started by hand wait for it."""
    all_nodes: Nodes | None = None
    by_hand = [config for config in configs if config.nodes > 1 and config.cluster.kind == "none"]
    with suppress(OSError):  # `met` will report it.
        all_nodes = Nodes(by_hand[0]) if by_hand else None
    try:
        yield
    except ConfigError as error:
        if all_nodes:
            all_nodes.end(Failure("bad_input", f"node {node_records.name()}: {error}"))
        raise
    finally:
        if all_nodes:
            all_nodes.close(last=False)
