"""How often a password was wrong, from which address and for which user; shared by the processes of a server."""

from __future__ import annotations

import ipaddress
import math
import sqlite3
import threading
import time
from pathlib import Path

WINDOW_SEC = 60.0
MAX_PER_USER = 10  # wrong passwords for one user from one address, within the window
MAX_PER_ADDRESS = 100  # for all users together: many people may share an address


class Failures:
    """Rows of a small SQLite file, since one process would see only its share of the attempts.

    A file that cannot be used lets everybody try: a full disk must not lock a team out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def add(self, user: str, address: str) -> None:
        now = time.time()
        self._ask("DELETE FROM failures WHERE at < ?", now - WINDOW_SEC)
        self._ask("INSERT INTO failures VALUES (?, ?, ?)", now, user, network(address))

    def wait_sec(self, user: str, address: str) -> int:
        """For how long no password of this user is looked at from this address; 0 where one is."""
        now, place = time.time(), network(address)
        rows = self._ask("SELECT at, user FROM failures WHERE place = ? AND at > ?", place, now - WINDOW_SEC)
        mine = sorted(at for at, name in rows if name == user)
        everyones = sorted(at for at, _ in rows)
        counted = ((mine, MAX_PER_USER), (everyones, MAX_PER_ADDRESS))
        ends = [times[-most] + WINDOW_SEC for times, most in counted if len(times) >= most]
        return max((math.ceil(end - now) for end in ends), default=0)

    def _ask(self, statement: str, *values: object) -> list[tuple[float, str]]:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._open()
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.Error:
                return []

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=1, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = OFF")  # what a crash loses is a minute's count
        connection.execute("CREATE TABLE IF NOT EXISTS failures (at REAL, user TEXT, place TEXT)")
        connection.execute("CREATE INDEX IF NOT EXISTS by_place ON failures (place, at)")
        return connection


def network(address: str) -> str:
    """Whose address it is: of IPv6 the first 64 bits, which is what one customer is given (RFC 6177)."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(parsed) if parsed.version == 4 else str(ipaddress.ip_network((int(parsed), 64), strict=False))
