"""What a worker does where its run has other machines: it uses the route to them, and compares what they are."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import struct
import time
from pathlib import Path
from typing import Any

from conf import schema
from tracking.machine.environment import fingerprint
from tracking.record import Journal, documents, files, node_records, run_folder
from tracking.request.node_options import address

TIMEOUT_SEC = 300  # One node's first import of PyTorch, from a file system that all nodes read, can take minutes.
SIOCGIFADDR = 0x8915  # The number is from linux/sockios.h.
FINGERPRINT = re.compile(r"fingerprint-([\w-]+)\.json", re.ASCII)  # An earlier attempt's have a number behind it.


def use_the_route() -> None:
    """Have gloo use the interface that leads to the rendezvous; it would take that of the host name, often loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect(address(node_records.rendezvous()))  # It sends nothing, and finds a route.
        own = asking.getsockname()[0]
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asking, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # It has no address.
                continue
            if socket.inet_ntoa(answer[20:24]) == own:
                os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def compared(config: schema.RunConfig, run_dir: Path) -> dict[str, str]:
    """On node 0, wait for all fingerprints and journal the tags that say in what they differ; return those tags."""
    if node_records.rank():
        return {}
    others = others_fingerprints(config, run_dir)
    facts = {node_records.name(): documents.read_json(run_dir / run_folder.FINGERPRINT), **others}
    tags = fingerprint.compared(list(facts), list(facts.values()))
    if "env.differs" in tags:
        print(f"the nodes {tags['env.nodes']} differ in {tags['env.differs']}", flush=True)
    journal = Journal(run_dir / run_folder.JOURNAL)
    journal.tags(tags)
    journal.close()
    return tags


def others_fingerprints(config: schema.RunConfig, run_dir: Path) -> dict[str, Any]:
    """The fingerprints of all nodes but this one, by node. Raises ConfigError for nodes whose own is not there."""
    deadline = time.monotonic() + TIMEOUT_SEC
    while True:
        matches = [match for match in map(FINGERPRINT.fullmatch, files.names(run_dir)) if match]
        if len(matches) == config.nodes - 1:
            return {match[1]: documents.read_json(run_dir / match[0]) for match in matches}
        if time.monotonic() > deadline:
            raise schema.ConfigError(f"nodes={config.nodes}: fingerprints of {len(matches) + 1} nodes are in {run_dir}")
        time.sleep(0.1)
