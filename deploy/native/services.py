"""The three services of a server, in the order of their start: PostgreSQL, MLflow, nginx."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from string import Template

from deploy.native.postgresql import PostgreSQL
from deploy.native.process import ProcessGroup, wait_until
from deploy.native.settings import (
    ServerError,
    Settings,
    load_secrets,
    private_folder,
    server_environment,
    write_private,
)

START_TIMEOUT_SEC = 300  # MLflow first creates or checks its tables
REPOSITORY = Path(__file__).parent.parent.parent
TEMPLATE = REPOSITORY / "deploy/nginx.conf.template"

AUTH_INI = """[mlflow]
default_permission = {default_permission}
database_uri = {uri}
admin_username = admin
authorization_function = deploy.guard:authenticate
# A password is compared with its slow hash once a minute, not at every request, which would be the server's largest
# load. So a former password or a deleted user may work for another minute.
auth_cache_ttl_seconds = 60
"""

NGINX_CONF = """daemon off;
pid {home}/nginx/nginx.pid;
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
    """HTTP over a Unix socket, directly to MLflow, bypassing the proxy."""

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
        self._temporary = settings.home / "tmp"
        self._group = ProcessGroup(settings.home / "sockets/mlflow.pid", settings.home / "logs/mlflow.log")

    def running(self) -> bool:
        """Whether MLflow answers."""
        connection = UnixConnection(self.socket, timeout=10)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def start(self) -> None:
        if self.running():
            return
        self.stop()  # it may hang
        ini = self._settings.home / "auth.ini"
        uri = self._database.uri("auth").replace("%", "%%")
        write_private(ini, AUTH_INI.format(default_permission=self._settings.default_permission, uri=uri))
        private_folder(self._temporary)
        if self._settings.artifact_folder:
            self._settings.artifact_folder.mkdir(parents=True, exist_ok=True)
        process = self._group.start(self.confined(), self.environment(ini), self._settings.home)
        wait_until(lambda: self.running() or process.poll() is not None, START_TIMEOUT_SEC)
        if not self.running():
            log_tail = self._group.log.read_text(errors="replace")[-1500:]
            self.stop()
            raise ServerError(f"MLflow did not start:\n{log_tail}\nNext: see {self._group.log}")

    def stop(self) -> None:
        self._group.stop()
        self.socket.unlink(missing_ok=True)

    def confined(self) -> list[str]:
        """MLflow's command, confined so that it can write only to its own folders, even if a client misuses it."""
        folders = [self.socket.parent, self._temporary, *filter(None, [self._settings.artifact_folder])]
        return [self._settings.python, "-m", "deploy.native.confine", *map(str, folders), "--", *self.command()]

    def command(self) -> list[str]:
        settings = self._settings
        hosts = {host for name in settings.names for host in (name, f"{name}:{settings.port}")} | {"localhost"}
        origins = [f"https://{name}:{settings.port}" for name in settings.names]
        return [
            settings.python, "-m", "mlflow", "server", "--app-name", "basic-auth",
            "--serve-artifacts", "--artifacts-destination", settings.artifacts_destination,
            "--workers", str(settings.workers), "--uvicorn-opts",
            f"--uds {self.socket} --no-access-log --http deploy.guard.gate:Gate",
            "--allowed-hosts", ",".join(sorted(hosts)), "--cors-allowed-origins", ",".join(origins),
        ]  # fmt: skip

    def environment(self, ini: Path) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "PG"))}
        return {
            **inherited,
            **self._database.environment,
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [inherited.get("PYTHONPATH")])]),  # the guard
            "TMPDIR": str(self._temporary),
            "MLFLOW_BACKEND_STORE_URI": self._database.uri("tracking"),  # not an argument, which all users could see
            "MLFLOW_AUTH_CONFIG_PATH": str(ini),
            "MLFLOW_AUTH_ADMIN_PASSWORD": self._secrets["admin_password"],  # only read at the first start
            "MLFLOW_FLASK_SERVER_SECRET_KEY": self._secrets["flask_secret_key"],
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # seven processes that a tracking server does not need
            "MLFLOW_DISABLE_TELEMETRY": "true",
            **server_environment(self._settings.home),
        }


class Nginx:
    def __init__(self, settings: Settings, mlflow: MLflow) -> None:
        self._settings = settings
        self._mlflow = mlflow
        self._group = ProcessGroup(settings.home / "nginx/group.pid", settings.home / "logs/nginx.log")

    def running(self) -> bool:
        """Whether nginx's first process runs. Without it, workers may still run, but with an old configuration."""
        return bool(self._group.leader_pid())

    def start(self) -> None:
        """Start nginx, or let it reload its configuration and certificate."""
        self._configure()
        command = self._command()
        config_test = subprocess.run([*command, "-t"], capture_output=True, text=True, cwd="/", umask=0o077)
        if config_test.returncode:
            raise ServerError(f"nginx: {config_test.stderr.strip()[-1500:]}")
        if self.running():
            os.kill(self._group.leader_pid(), signal.SIGHUP)
            return
        self._group.stop()  # workers that outlived their first process
        process = self._group.start(command, os.environ, Path("/"))
        wait_until(lambda: self._listens() or process.poll() is not None, START_TIMEOUT_SEC)
        if not self._listens() or process.poll() is not None:
            log_tail = self._group.log.read_text(errors="replace")[-1500:]
            self.stop()
            raise ServerError(f"nginx did not start:\n{log_tail}")

    def stop(self) -> None:
        self._group.stop()

    def _listens(self) -> bool:
        address, _, port = self._settings.listen.rpartition(":")
        wildcard = {"0.0.0.0": "127.0.0.1", "[::]": "::1"}
        try:
            socket.create_connection((wildcard.get(address, address.strip("[]")), int(port)), timeout=5).close()
        except OSError:
            return False
        return True

    def _command(self) -> list[str]:
        program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") or "nginx"
        home = self._settings.home
        return [program, "-c", f"{home}/nginx/nginx.conf", "-e", f"{home}/logs/nginx.log"]

    def _configure(self) -> None:
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


class Server:
    """The three services together."""

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
