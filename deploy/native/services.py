"""The three services of a server, in the order in which they start: PostgreSQL, MLflow, nginx."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from string import Template

from deploy.native.postgresql import PostgreSQL
from deploy.native.settings import ServerError, Settings, load_secrets, server_environment, write_private

START_TIMEOUT_SEC = 180  # of MLflow, which makes or checks its tables first
STOP_TIMEOUT_SEC = 30
TEMPLATE = Path(__file__).parent.parent / "nginx.conf.template"

AUTH_INI = """[mlflow]
default_permission = {default_permission}
database_uri = {uri}
admin_username = admin
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
# A password is compared with its slow hash once a minute, not with every request: that would take more of the
# server's cores than all else. So a changed password or a deleted user may work on for a minute.
auth_cache_ttl_seconds = 60
"""

NGINX_CONF = """pid {home}/nginx/nginx.pid;
error_log {home}/logs/nginx.log warn;
worker_processes {workers};
{user}
events {{ worker_connections 1024; }}
http {{
    client_body_temp_path {home}/nginx/body;
    proxy_temp_path {home}/nginx/proxy;
    fastcgi_temp_path {home}/nginx/fastcgi;
    uwsgi_temp_path {home}/nginx/uwsgi;
    scgi_temp_path {home}/nginx/scgi;
    {site}
}}
"""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket: to MLflow itself, past the proxy."""

    def __init__(self, path: Path, timeout: float = 60) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class MLflow:
    def __init__(self, settings: Settings, database: PostgreSQL) -> None:
        self._settings = settings
        self._database = database
        self._secrets = load_secrets(settings.home)
        self.socket = settings.home / "sockets/mlflow.sock"
        self._pid = settings.home / "sockets/mlflow.pid"
        self._log = settings.home / "logs/mlflow.log"

    def running(self) -> bool:
        """Whether it answers."""
        connection = UnixConnection(self.socket, timeout=10)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def start(self) -> None:
        if self.running():
            return
        self.stop()  # one that hangs
        ini = self._settings.home / "auth.ini"
        uri = self._database.uri("auth").replace("%", "%%")
        write_private(ini, AUTH_INI.format(default_permission=self._settings.default_permission, uri=uri))
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command(), env=self._environment(ini), cwd=self._settings.home, umask=0o077,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        write_private(self._pid, f"{process.pid} {start_time(process.pid)}")
        wait_until(lambda: self.running() or process.poll() is not None, START_TIMEOUT_SEC)
        if not self.running():
            words = self._log.read_text(errors="replace")[-1500:]
            self.stop()
            raise ServerError(f"MLflow did not start:\n{words}\n(all of it in {self._log})")

    def stop(self) -> None:
        pid = self._process()
        for signum in (signal.SIGTERM, signal.SIGKILL) if pid else ():
            with suppress(ProcessLookupError):
                os.killpg(pid, signum)
            if wait_until(lambda: not self._process(), STOP_TIMEOUT_SEC):
                break
        self._pid.unlink(missing_ok=True)
        self.socket.unlink(missing_ok=True)

    def _process(self) -> int:
        """The id of the process that was started; 0 where it has ended."""
        with suppress(OSError, ValueError):
            pid, started = map(int, self._pid.read_text().split())
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # of our own child, where it was this process that started it
            if start_time(pid) == started:  # else the number has been given to another process since
                return pid
        return 0

    def _command(self) -> list[str]:
        settings = self._settings
        hosts = {name for own in settings.names for name in (own, f"{own}:{settings.port}")} | {"localhost"}
        origins = [f"https://{name}:{settings.port}" for name in settings.names]
        return [
            settings.python, "-m", "mlflow", "server", "--app-name", "basic-auth",
            "--serve-artifacts", "--artifacts-destination", settings.artifacts_destination,
            "--workers", str(settings.workers), "--uvicorn-opts", f"--uds {self.socket} --no-access-log",
            "--allowed-hosts", ",".join(sorted(hosts)), "--cors-allowed-origins", ",".join(origins),
        ]  # fmt: skip

    def _environment(self, ini: Path) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "PG"))}
        return {
            **inherited,
            **self._database.environment,
            "MLFLOW_BACKEND_STORE_URI": self._database.uri("tracking"),  # not an argument, which all users can see
            "MLFLOW_AUTH_CONFIG_PATH": str(ini),
            "MLFLOW_AUTH_ADMIN_PASSWORD": self._secrets["admin_password"],  # for the first start; see set-password
            "MLFLOW_FLASK_SERVER_SECRET_KEY": self._secrets["flask_secret_key"],
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # seven processes that a tracking server does without
            "MLFLOW_DISABLE_TELEMETRY": "true",
            **server_environment(self._settings.home),
        }


class Nginx:
    def __init__(self, settings: Settings, mlflow: MLflow) -> None:
        self._settings = settings
        self._mlflow = mlflow
        self._pid = settings.home / "nginx/nginx.pid"

    def running(self) -> bool:
        with suppress(OSError, ValueError):
            return b"nginx" in Path(f"/proc/{int(self._pid.read_text())}/cmdline").read_bytes()
        return False

    def start(self) -> None:
        """Start it; where it runs, have it read its configuration and certificate again."""
        settings = self._settings
        address, _, port = settings.listen.rpartition(":")
        values = {
            "ACCESS_LOG": f"{settings.home}/logs/access.log",
            "MLFLOW_SOCKET": str(self._mlflow.socket),
            "LISTEN": f"{address}:{port}",
            "SERVER_NAME": " ".join(settings.names),
            "CERTIFICATE": f"{settings.home}/tls/certificate.pem",
            "KEY": f"{settings.home}/tls/key.pem",
        }
        site = Template(TEMPLATE.read_text(encoding="utf-8")).safe_substitute(values)
        user = "user root;" if os.geteuid() == 0 else ""
        workers = min(4, settings.workers)
        text = NGINX_CONF.format(home=settings.home, workers=workers, user=user, site=site)
        write_private(settings.home / "nginx/nginx.conf", text)
        self._nginx("-t")
        self._nginx(*(("-s", "reload") if self.running() else ()))
        if not wait_until(self.running, STOP_TIMEOUT_SEC):
            raise ServerError(f"nginx did not start: see {settings.home}/logs/nginx.log")

    def stop(self) -> None:
        if self.running():
            self._nginx("-s", "stop")
            wait_until(lambda: not self.running(), STOP_TIMEOUT_SEC)

    def _nginx(self, *arguments: str) -> None:
        program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") or "nginx"
        home = self._settings.home
        command = [program, "-c", f"{home}/nginx/nginx.conf", "-e", f"{home}/logs/nginx.log", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", umask=0o077)
        if done.returncode:
            raise ServerError(f"nginx: {done.stderr.strip()[-1500:]}")


class Server:
    """The three together."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = PostgreSQL(settings)
        self.mlflow = MLflow(settings, self.database)
        self.nginx = Nginx(settings, self.mlflow)

    @property
    def services(self) -> dict[str, PostgreSQL | MLflow | Nginx]:
        return {"PostgreSQL": self.database, "MLflow": self.mlflow, "nginx": self.nginx}

    def start(self) -> None:
        for service in self.services.values():
            service.start()

    def stop(self) -> None:
        for service in reversed(self.services.values()):
            service.stop()


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot: with its number, it names the process for good.

    Raises OSError where there is none; a zombie counts as none.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if fields[0] == "Z":
        raise ProcessLookupError(pid)
    return int(fields[19])


def wait_until(condition: Callable[[], object], timeout_sec: float) -> bool:
    deadline = time.monotonic() + timeout_sec
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
