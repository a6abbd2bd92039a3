"""Slurm's accounting for tests: slurmdbd and the MariaDB that it writes to, on loopback, in a folder of their own."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.support.folders import wait_for

COMMANDS = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacct", "sacctmgr")
CONFIG = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageLoc=slurm
StorageUser=slurm
StoragePass=slurm
"""


def daemon(name: str) -> str | None:
    return shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")


def missing() -> str:
    """Why there can be no accounting here; empty where there can."""
    absent = [command for command in COMMANDS if not daemon(command)]
    return f"there is no {', '.join(absent)} (Debian: slurmdbd, mariadb-server)" if absent else ""


class Accounting:
    """A database and slurmdbd; `config` is what slurm.conf says of them."""

    def __init__(self, folder: Path, host: str, database_port: int, port: int) -> None:
        self._folder, self._host, self._port = folder, host, port
        self._database_port = database_port
        self._processes: list[subprocess.Popen[bytes]] = []
        self.config = (
            "AccountingStorageType=accounting_storage/slurmdbd\n"
            f"AccountingStorageHost=127.0.0.1\nAccountingStoragePort={port}\n"
            f"AccountingStoragePass={folder}/munge.sock\nAccountingStorageEnforce=associations,qos\n"
        )

    def start(self) -> None:
        """Start both, once munge runs."""
        data = self._folder / "database"
        common = [f"--datadir={data}", "--user=root", "--skip-test-db", "--auth-root-authentication-method=normal"]
        subprocess.run([str(daemon("mariadb-install-db")), "--no-defaults", *common], check=True, capture_output=True)
        with (self._folder / "mariadb.log").open("wb") as log:
            options = [f"--datadir={data}", "--user=root", f"--port={self._database_port}", "--bind-address=127.0.0.1"]
            options += [f"--socket={self._folder}/mariadb.sock", "--innodb-flush-log-at-trx-commit=2"]
            command = [str(daemon("mariadbd")), "--no-defaults", *options]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        wait_for(lambda: self._database("SELECT 1") or self._processes[0].poll() is not None)
        self._database("CREATE DATABASE slurm; GRANT ALL ON slurm.* TO slurm@'%' IDENTIFIED BY 'slurm'")
        self._database("GRANT ALL ON slurm.* TO slurm@localhost IDENTIFIED BY 'slurm'")
        text = CONFIG.format(folder=self._folder, host=self._host, port=self._port, database_port=self._database_port)
        (self._folder / "slurmdbd.conf").write_text(text)
        (self._folder / "slurmdbd.conf").chmod(0o600)
        self.start_slurmdbd()

    def _database(self, statement: str) -> bool:
        command = ["mariadb", "--no-defaults", f"--socket={self._folder}/mariadb.sock", "-u", "root", "-e", statement]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def start_slurmdbd(self) -> None:
        env = {"SLURM_CONF": str(self._folder / "slurm.conf"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        with (self._folder / "slurmdbd.out").open("wb") as log:
            command = [str(daemon("slurmdbd")), "-D"]
            self._processes.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))

    def stop_slurmdbd(self) -> None:
        slurmdbd = self._processes.pop()
        slurmdbd.terminate()
        slurmdbd.wait(60)

    def stop(self) -> None:
        while self._processes:
            process = self._processes.pop()
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
