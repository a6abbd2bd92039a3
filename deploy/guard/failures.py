"""Counts wrong passwords by address and user, for all processes of a server."""

from __future__ import annotations

import ipaddress
import math
import sqlite3
import threading
import time
from pathlib import Path

WINDOW_SEC = 60.0
MAX_PER_USER = 10  # wrong passwords for one user from one address within the window
MAX_PER_ADDRESS = 100  # for all users together, since many people may share an address


class Failures:
    """Wrong passwords in a small SQLite file, since each process sees only its share of the attempts.

    Without a usable file nobody is refused: a full disk must not lock a team out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def add(self, user: str, address: str) -> None:
        now = time.time()
        self._execute("DELETE FROM failures WHERE at < ?", now - WINDOW_SEC)
        self._execute("INSERT INTO failures VALUES (?, ?, ?)", now, user, network(address))

    def wait_sec(self, user: str, address: str) -> int:
        """Seconds until the next attempt for this user from this address is allowed; 0 if it is allowed now."""
        now, subnet = time.time(), network(address)
        rows = self._execute("SELECT at, user FROM failures WHERE place = ? AND at > ?", subnet, now - WINDOW_SEC)
        user_times = sorted(at for at, name in rows if name == user)
        address_times = sorted(at for at, _ in rows)
        limits = ((user_times, MAX_PER_USER), (address_times, MAX_PER_ADDRESS))
        allowed_at = [times[-limit] + WINDOW_SEC for times, limit in limits if len(times) >= limit]
        return max((math.ceil(end - now) for end in allowed_at), default=0)

    def _execute(self, statement: str, *values: object) -> list[tuple[float, str]]:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._open()
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.Error:
                return []

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=1, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = OFF")  # a crash loses at most a minute's count
        connection.execute("CREATE TABLE IF NOT EXISTS failures (at REAL, user TEXT, place TEXT)")
        connection.execute("CREATE INDEX IF NOT EXISTS by_place ON failures (place, at)")
        return connection


def network(address: str) -> str:
    """The network of one customer: an IPv4 address, or the first 64 bits of an IPv6 address (RFC 6177)."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(parsed) if parsed.version == 4 else str(ipaddress.ip_network((int(parsed), 64), strict=False))
