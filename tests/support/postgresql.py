"""A real PostgreSQL on a socket of its own, that a test can kill and start again."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

START_TIMEOUT_SEC = 600


class Postgresql:
    """`with Postgresql() as database:` runs it; `database.uri`, `.kill()`, `.start()`, `.query(sql)`."""

    def __init__(self) -> None:
        self._bin = installed()
        self.folder = Path(tempfile.mkdtemp(prefix="postgresql-"))  # pytest's folders are closed to other users
        self.uri = f"postgresql+psycopg://postgres@/postgres?host={self.folder}"
        self._as: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL does not run as root
            self._as = ["runuser", "-u", "postgres", "--"]
            shutil.chown(self.folder, "postgres")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        data = self.folder / "data"
        if not data.exists():
            initdb = [str(self._bin / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync"]
            subprocess.run([*self._as, *initdb], check=True, capture_output=True, cwd="/")
        options = ["-D", str(data), "-k", str(self.folder), "-c", "listen_addresses="]
        with (self.folder / "postgresql.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._as, str(self._bin / "postgres"), *options], stdout=log, stderr=log, cwd="/"
            )
        deadline = time.monotonic() + START_TIMEOUT_SEC
        while True:
            try:
                self.query("select 1")
                return
            except Exception:  # psycopg's are not imported at the top
                assert time.monotonic() < deadline, (self.folder / "postgresql.log").read_text()[-2000:]
                time.sleep(0.1)

    def kill(self) -> None:
        """End it with all of its processes, in the middle of whatever they do."""
        if self._process is None:
            return
        family = [psutil.Process(self._process.pid), *psutil.Process(self._process.pid).children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):  # one of them may be through just now
                process.kill()
        self._process.wait()
        psutil.wait_procs(family)
        self._process = None

    def query(self, sql: str) -> list[tuple]:
        import psycopg

        with psycopg.connect(host=str(self.folder), user="postgres", dbname="postgres") as connection:
            return connection.execute(sql).fetchall()  # type: ignore[call-overload]

    def __enter__(self) -> Postgresql:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def installed() -> Path:
    """The folder of PostgreSQL's programs, installed where that is possible; the test is skipped where it is not."""
    for attempt in range(2):
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        if programs:
            return programs[-1].parent
        if attempt == 0 and os.geteuid() == 0 and shutil.which("apt-get"):
            subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True)
            install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "postgresql"]
            subprocess.run(
                install, check=False, capture_output=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            )
    pytest.skip("there is no PostgreSQL in /usr/lib/postgresql, and it cannot be installed here")
