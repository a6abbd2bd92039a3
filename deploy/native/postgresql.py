"""The server's own PostgreSQL, on a Unix socket in a private folder, without a port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

from deploy.native.settings import ServerError, Settings, load_secrets, private_folder, write_private

DATABASES = ("tracking", "auth")
ROLE, SUPERUSER = "mlflow", "postgres"
START_TIMEOUT_SEC = 300  # after a crash it first replays its log

CONFIGURATION = """
# Written by python -m deploy.native init
listen_addresses = ''
unix_socket_directories = '{socket}'
unix_socket_permissions = 0700
max_connections = {connections}
shared_buffers = 256MB
"""


class PostgreSQL:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._secrets = load_secrets(settings.home)
        self.folder = settings.home / "database"
        self.data = self.folder / "data"
        self.socket = self.folder / "socket"

    def uri(self, database: str) -> str:
        """SQLAlchemy's URI of a database; the password is in the file that $PGPASSFILE names."""
        return f"postgresql+psycopg://{ROLE}@/{database}?host={quote(str(self.socket), safe='')}"

    @property
    def environment(self) -> dict[str, str]:
        return {"PGPASSFILE": str(self._settings.home / "pgpass")}

    def running(self) -> bool:
        return self.data.exists() and self._server("pg_ctl", "-D", str(self.data), "status").returncode == 0

    def start(self) -> None:
        """Start it if it is down. Raises ServerError if the database is missing."""
        if not self.data.exists():
            raise ServerError(
                f"{self.data}: the database is missing. Next: restore a backup, or make an empty database with init"
            )
        if not self.running():
            self._start(self.data)

    def stop(self) -> None:
        if self.running():
            self._checked(self._server("pg_ctl", "-D", str(self.data), "-m", "fast", "-w", "stop"))

    def sql(self, statement: str, database: str = "postgres", role: str = SUPERUSER) -> str:
        """Run a statement and return its rows, with | between columns."""
        options = ("-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1")
        return self.client("psql", *options, "-U", role, "-d", database, input=statement).strip()

    def client(self, program: str, *arguments: str, **options: Any) -> str:
        """Run a PostgreSQL client program and return its output. Raises ServerError with its error."""
        command = [self._program(program), "-h", str(self.socket), "-w", *arguments]
        environ = {**os.environ, **self.environment}
        process: subprocess.CompletedProcess[str] = subprocess.run(
            command, env=environ, capture_output=True, text=True, **options
        )
        self._checked(process)
        return process.stdout

    def recreate(self, database: str) -> None:
        self.sql(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')
        self.sql(f'CREATE DATABASE "{database}" OWNER {ROLE}')

    def initialise(self) -> None:
        """Make an empty database unless one exists."""
        if self.data.exists():
            return
        private_folder(self.folder)
        self._give_to_user(self.folder)
        private_folder(self.socket)
        unfinished = self.folder / "data.new"  # renamed when it is ready
        shutil.rmtree(unfinished, ignore_errors=True)
        passwords = self.folder / "superuser-password"
        write_private(passwords, self._secrets["superuser_password"])
        options = ("-E", "UTF8", "--locale=C", "-k", "--auth-local=scram-sha-256", "--auth-host=reject")
        superuser_options = ("-U", SUPERUSER, f"--pwfile={passwords}")
        self._checked(self._server("initdb", "-D", str(unfinished), *superuser_options, *options))
        passwords.unlink()
        # SQLAlchemy may open 15 connections for each worker to either database, and keeps some in reserve.
        text = CONFIGURATION.format(socket=self.socket, connections=40 * self._settings.workers + 20)
        with (unfinished / "postgresql.conf").open("a") as file:
            file.write(text)
        secret_names = {SUPERUSER: "superuser_password", ROLE: "database_password"}
        lines = [f"*:*:*:{role}:{self._secrets[name]}\n" for role, name in secret_names.items()]
        write_private(self._settings.home / "pgpass", "".join(lines))
        self._start(unfinished)
        self.sql(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{self._secrets['database_password']}'")
        for database in DATABASES:
            self.recreate(database)
        self._checked(self._server("pg_ctl", "-D", str(unfinished), "-m", "fast", "-w", "stop"))
        unfinished.rename(self.data)

    def _start(self, data: Path) -> None:
        log = str(self.folder / "postgresql.log")
        wait = ("-w", "-t", str(START_TIMEOUT_SEC))
        self._checked(self._server("pg_ctl", "-D", str(data), *wait, "-l", log, "start"), log)

    def _server(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a PostgreSQL server program, as a user that it accepts."""
        user = self._user()
        options: dict[str, Any] = {}
        if user.pw_uid != os.geteuid():
            options = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        # A file, not pipes, since the server keeps the output of its starter open as long as it lives.
        with (self.folder / "pg_ctl.log").open("w+") as output:
            process = subprocess.run(
                [self._program(program), *arguments], stdout=output, stderr=output, cwd="/", umask=0o077, **options
            )
            output.seek(0)
            return subprocess.CompletedProcess(process.args, process.returncode, "", output.read())

    def _user(self) -> pwd.struct_passwd:
        """The user that runs the server programs: this one. PostgreSQL refuses root; then it is Debian's package's."""
        if os.geteuid() != 0:
            return pwd.getpwuid(os.geteuid())
        try:
            return pwd.getpwnam("postgres")
        except KeyError:
            raise ServerError(
                "PostgreSQL does not run as root, and there is no user postgres. Next: give --run-as USER"
            ) from None

    def _give_to_user(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, self._user().pw_uid, self._user().pw_gid)

    def _program(self, name: str) -> str:
        path = Path(self._settings.postgresql_bin or "-") / name
        if not path.exists():
            raise ServerError("PostgreSQL is not installed. Next, on Debian: apt-get install postgresql")
        return str(path)

    @staticmethod
    def _checked(process: subprocess.CompletedProcess[str], log: str = "") -> None:
        if process.returncode:
            stderr = process.stderr.strip()[-2000:]
            raise ServerError(f"{Path(process.args[0]).name} failed: {stderr}{f'. Next: see {log}' if log else ''}")
