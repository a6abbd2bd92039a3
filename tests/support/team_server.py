"""A team's server as docs/server.md starts it, on a free loopback port: PostgreSQL, MLflow with users, nginx."""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import requests

from deploy.native import account_commands
from deploy.native.__main__ import parser
from deploy.native.accounts import Accounts, over_socket
from deploy.native.settings import find_postgresql
from tests.support.afterwards import even_if_killed
from tests.support.commands import HANGS_SEC, ROOT, environment

PACKAGES = {"nginx": "nginx", "openssl": "openssl"}  # program: Debian's package


@cache
def install() -> None:
    """Install what is missing, where that can be done; else skip the test."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [package for program, package in PACKAGES.items() if shutil.which(program, path=path) is None]
    missing += [] if find_postgresql() else ["postgresql"]
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip(f"needs {', '.join(missing)}: apt-get install {' '.join(missing)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=quiet)
    subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], check=True, env=quiet)


class TeamServer:
    """`with TeamServer() as server:` makes and starts one; `server.command("users")` is what an operator types."""

    def __init__(self) -> None:
        install()
        # Not below pytest's own folder: PostgreSQL refuses to run as root, and its user could not get through there.
        self._scratch = Path(tempfile.mkdtemp(prefix="tt-"))
        self._scratch.chmod(0o755)
        self._stack = ExitStack()
        self.home = self._scratch / "server"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.uri = f"https://localhost:{self.port}"
        self.certificate = self.home / "tls/certificate.pem"

    def run(
        self, *words: str, home: Path | None = None, env: dict[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "deploy.native", "--home", str(home or self.home), *words]
        options = {"cwd": ROOT, "env": environment(**(env or {})), "timeout": HANGS_SEC, **options}
        return subprocess.run(command, capture_output=True, text=True, **options)

    def command(self, *words: str, **options: Any) -> str:
        done = self.run(*words, **options)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def account(self, *words: str) -> str:
        """What a command for users, teams and permissions prints, in this process: tests need many of them."""
        printed = io.StringIO()
        with redirect_stdout(printed):
            assert account_commands.run(self.accounts, parser().parse_args(words)) == 0, words
        return printed.getvalue()

    def start(self) -> None:
        self.command("init", *who_runs_it(), "--listen", f"127.0.0.1:{self.port}", "--name", "localhost")
        self.command("start")

    @property
    def admin_password(self) -> str:
        return str(json.loads((self.home / "secrets.json").read_text())["admin_password"])

    @property
    def accounts(self) -> Accounts:
        return over_socket(self.home / "sockets/mlflow.sock", self.admin_password)

    @contextmanager
    def connection(self) -> Iterator[http.client.HTTPSConnection]:
        context = ssl.create_default_context(cafile=str(self.certificate))
        connection = http.client.HTTPSConnection("localhost", self.port, timeout=HANGS_SEC, context=context)
        try:
            yield connection
        finally:
            connection.close()

    def credentials(self, user: str = "admin", password: str | None = None) -> dict[str, str]:
        """The environment of a user's commands."""
        return {
            "MLFLOW_TRACKING_URI": self.uri,
            "MLFLOW_TRACKING_USERNAME": user,
            "MLFLOW_TRACKING_PASSWORD": password or self.admin_password,
            "MLFLOW_TRACKING_SERVER_CERT_PATH": str(self.certificate),
        }

    def __enter__(self) -> TeamServer:
        stop = f"cd {ROOT} && {sys.executable} -m deploy.native --home {self.home} stop; rm -r {self._scratch}"
        self._stack.enter_context(even_if_killed("sh", "-c", stop))
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.run("stop")
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._stack.close()


class Asker:
    """Requests of one user, or of a stranger."""

    def __init__(self, server: TeamServer, user: str = "", password: str = "") -> None:
        self._server = server
        self._session = requests.Session()
        self._session.verify = str(server.certificate)
        self._session.trust_env = False
        self._session.auth = (user, password) if user else None
        self._basic = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def __call__(self, method: str, path: str, **options: Any) -> requests.Response:
        ask = partial(self._session.request, method, self._server.uri + path, timeout=60, allow_redirects=False)
        try:
            return ask(**options)
        except requests.ConnectionError:  # The server closed a kept connection as this was on its way.
            return ask(**options)

    def as_written(self, method: str, target: str, **values: Any) -> tuple[int, str]:
        """Status and text of the answer to a target that nothing has put into another form before it is sent."""
        with self._server.connection() as connection:
            headers = {"Authorization": self._basic, "Content-Type": "application/json"}
            connection.request(method, target, json.dumps(values), headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")


def who_runs_it() -> tuple[str, ...]:
    """As root: a user without rights, where that user can run this interpreter; else root itself."""
    if os.geteuid() != 0:
        return ()
    command = [sys.executable, "-c", "import mlflow.version, deploy.native.settings"]
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment(), user="nobody", extra_groups=[], capture_output=True)
    except OSError:  # an interpreter in root's home folder, as some tools install it
        return ("--run-as", "root")
    return ("--run-as", "root" if done.returncode else "nobody")
