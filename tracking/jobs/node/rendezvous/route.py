"""The address of node 0: as given, or its own on the route to the other nodes."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from conf.schema import ConfigError
from tracking.jobs.node.rendezvous.node_files import NodeState
from tracking.request.node_options import address

ANY_PORT = 9  # Connecting a datagram socket sends nothing, so no port needs to be open.


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
