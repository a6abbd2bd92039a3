"""A real MLflow server on a free loopback port, over SQLite, that a test can kill and start again; and a false one."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from importlib.resources import files
from pathlib import Path

from tests.support import forked, forked_mlflow
from tests.support.afterwards import even_if_killed
from tracking.store.server import empty_database

START_TIMEOUT_SEC = 600  # a start takes 5 to 20 s, and longer where others keep the cores busy


class MlflowServer:
    """`with MlflowServer(folder) as server:` runs it; `server.uri`, `server.database`, `server.kill()`, `.start()`.

    `store` is the URI of another database than the SQLite file `server.database`; `prefix` a path that all is below;
    `admin_password`, of 12 characters or more, makes it one that asks for users, of whom `admin` is the first.
    """

    def __init__(self, folder: Path, store: str = "", prefix: str = "", admin_password: str = "") -> None:
        self.folder = folder
        self.database = folder / "mlflow.db"
        self._store = store or f"sqlite:///{self.database}"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.prefix = prefix
        self._admin_password = admin_password
        self.uri = f"http://127.0.0.1:{self.port}{prefix}"
        self._process: forked.Forked | subprocess.Popen[bytes] | None = None
        self._watched = ExitStack()

    def start(self) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "PYTEST_"))}
        # The job runner is seven more processes that a tracking server does without.
        environ |= {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        has_tables = self._store == f"sqlite:///{self.database}" and (
            self.database.exists() or empty_database.copy(self.database)  # MLflow takes long to make its tables.
        )
        is_app = has_tables and not self._admin_password
        words, more = self._app() if is_app else self._command()
        log_path = self.folder / "server.log"
        if is_app and forked.possible():
            asked = [str(log_path), *words[1:]]
            self._process = forked.Forked(asked, self.folder, environ | more, script=forked_mlflow.__file__)
        else:
            with log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", *words], env=environ | more, cwd=self.folder, stdout=log, stderr=log,
                    start_new_session=True,
                )  # fmt: skip
        self._watched.enter_context(even_if_killed("kill", "-9", "--", f"-{self._process.pid}"))
        self._wait()

    def _app(self) -> tuple[list[str], dict[str, str]]:
        """What `mlflow server` starts when it has imported all of MLflow for itself, which takes as long again."""
        config = files("mlflow") / "server/uvicorn_log_config.yaml"
        words = ["uvicorn", "--log-config", str(config), "--host", "127.0.0.1", "--port", str(self.port)]
        prefix = {"_MLFLOW_STATIC_PREFIX": self.prefix} if self.prefix else {}
        return [*words, "mlflow.server.fastapi_app:app"], prefix | {
            "_MLFLOW_SERVER_FILE_STORE": self._store, "_MLFLOW_SERVER_REGISTRY_STORE": self._store,
            "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/", "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
            "_MLFLOW_SERVER_ARTIFACT_DESTINATION": str(self.folder / "served"), "_MLFLOW_SGI_NAME": "uvicorn",
        }  # fmt: skip

    def _command(self) -> tuple[list[str], dict[str, str]]:
        """The words of `mlflow server`, and its variables."""
        options = {
            "--backend-store-uri": self._store,
            "--artifacts-destination": str(self.folder / "served"),
            "--host": "127.0.0.1",
            "--port": str(self.port),
            "--workers": "1",
        }
        if self.prefix:
            options["--static-prefix"] = self.prefix
        accounts: dict[str, str] = {}
        if self._admin_password:
            options["--app-name"] = "basic-auth"
            accounts = self._accounts()
        return ["mlflow", "server", *(word for option in options.items() for word in option)], accounts

    def _accounts(self) -> dict[str, str]:
        """The variables by which MLflow's own accounts are set up; their database keeps what is changed there."""
        path = self.folder / "basic_auth.ini"
        settings = {
            "default_permission": "READ",
            "database_uri": f"sqlite:///{self.folder}/basic_auth.db",
            "admin_username": "admin",
            "admin_password": self._admin_password,
            "authorization_function": "mlflow.server.auth:authenticate_request_basic_auth",
        }
        path.write_text("[mlflow]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
        return {"MLFLOW_AUTH_CONFIG_PATH": str(path), "MLFLOW_FLASK_SERVER_SECRET_KEY": "of a test"}

    def kill(self) -> None:
        """End the server and its workers as `kill -9` does, in the middle of whatever it is doing."""
        if self._process:
            with suppress(ProcessLookupError):  # It has ended by itself.
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        self._watched.close()

    def __enter__(self) -> MlflowServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _wait(self) -> None:
        assert self._process
        deadline = time.monotonic() + START_TIMEOUT_SEC
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=5):
                    break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        else:
            self._give_up()
        if not self._admin_password:  # It opens its database for the first request, which others would wait for.
            urllib.request.urlopen(f"{self.uri}/api/2.0/mlflow/experiments/search?max_results=1").close()

    def _give_up(self) -> None:
        log = (self.folder / "server.log").read_text()
        self.kill()
        raise RuntimeError(f"the MLflow server did not start:\n{log[-2000:]}")


class answering:
    """A server that answers every request with one status and JSON, and notes the Authorization headers."""

    def __init__(self, status: int, **content: str) -> None:
        headers: list[str | None] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                headers.append(self.headers["Authorization"])
                self.rfile.read(int(self.headers["Content-Length"] or 0))
                body = json.dumps({"message": "no", **content}).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer

            def log_message(self, *_: object) -> None:
                """Keep the test's output clean."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._headers = headers

    def __enter__(self) -> tuple[str, list[str | None]]:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}", self._headers

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
