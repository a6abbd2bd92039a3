"""Connects a worker with the other nodes of its run, and compares their fingerprints."""

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
FINGERPRINT = re.compile(r"fingerprint-([\w-]+)\.json", re.ASCII)  # Those of earlier attempts end in a number.


def use_the_route() -> None:
    """Make gloo use the interface that leads to the rendezvous; by default it takes the host name's, often loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(address(node_records.rendezvous()))  # Connecting a UDP socket only selects a route.
        local_address = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # The interface has no address.
                continue
            if socket.inet_ntoa(answer[20:24]) == local_address:
                os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def compared(config: schema.RunConfig, run_dir: Path) -> dict[str, str]:
    """On the head node, wait for all fingerprints; journal and return the tags that name their differences."""
    if node_records.rank():
        return {}
    others = others_fingerprints(config, run_dir)
    facts = {node_records.name(): documents.read_json(run_dir / run_folder.FINGERPRINT), **others}
    tags = fingerprint.compared(list(facts), list(facts.values()))
    if "env.differs" in tags:
        print(f"nodes {tags['env.nodes']} differ in {tags['env.differs']}", flush=True)
    journal = Journal(run_dir / run_folder.JOURNAL)
    journal.tags(tags)
    journal.close()
    return tags


def others_fingerprints(config: schema.RunConfig, run_dir: Path) -> dict[str, Any]:
    """Return the other nodes' fingerprints, by node. Raises ConfigError if one is missing after TIMEOUT_SEC."""
    deadline = time.monotonic() + TIMEOUT_SEC
    while True:
        matches = [match for match in map(FINGERPRINT.fullmatch, files.names(run_dir)) if match]
        if len(matches) == config.nodes - 1:
            return {match[1]: documents.read_json(run_dir / match[0]) for match in matches}
        if time.monotonic() > deadline:
            raise schema.ConfigError(
                f"nodes={config.nodes}: only {len(matches) + 1} nodes wrote a fingerprint to {run_dir} within"
                f" {TIMEOUT_SEC} s. Next: check that every node runs, and that runs_dir is a folder that they share"
            )
        time.sleep(0.1)
