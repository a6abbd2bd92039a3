"""The native server as an operator uses it: PostgreSQL, MLflow with users, nginx; killed, destroyed and restored."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from deploy.native.services import Server
from deploy.native.settings import load
from tests.support.commands import HANGS_SEC, ROOT, environment
from tests.support.folders import wait_for
from tests.support.team_server import TeamServer

pytestmark = [
    pytest.mark.service,
    # Only MLflow's dependencies raise these warnings: some use what others deprecate.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def as_user(team_server: TeamServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., MlflowClient]:
    """A client of MLflow's for a user; the last one that was asked for is the one that works."""

    def client(name: str = "admin", password: str | None = None) -> MlflowClient:
        settings = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", **team_server.credentials(name, password)}
        for key, value in settings.items():
            monkeypatch.setenv(key, value)
        return MlflowClient(team_server.uri)

    return client


def test_only_the_proxy_listens_and_only_on_loopback(team_server: TeamServer) -> None:
    listening = set()
    for process in psutil.process_iter():
        try:
            if str(team_server.home) in " ".join([*process.cmdline(), process.cwd()]) or process.name() == "postgres":
                listening |= {
                    connection.laddr for connection in process.net_connections("inet") if connection.status == "LISTEN"
                }
        except psutil.Error:
            continue
    assert {(address.ip, address.port) for address in listening} == {("127.0.0.1", team_server.port)}


def test_files_are_for_the_server_s_own_user_alone(team_server: TeamServer) -> None:
    open_to_others = [
        path
        for path in team_server.home.rglob("*")
        if not path.is_socket() and stat.S_IMODE(path.lstat().st_mode) & 0o077
    ]
    assert not open_to_others
    assert stat.S_IMODE(team_server.home.stat().st_mode) in (0o700, 0o711)


def test_every_password_is_generated_and_kept(team_server: TeamServer) -> None:
    secrets = json.loads((team_server.home / "secrets.json").read_text())
    assert len(set(secrets.values())) == len(secrets) == 4
    assert all(len(secret) >= 24 for secret in secrets.values())
    before = sorted((path, path.read_bytes()) for path in team_server.home.glob("tls/*"))
    team_server.command("init")
    assert json.loads((team_server.home / "secrets.json").read_text()) == secrets
    assert sorted((path, path.read_bytes()) for path in team_server.home.glob("tls/*")) == before
    # Every user of the machine can see command lines, so the passwords are not on them.
    shown = " ".join(word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or [])
    assert not [name for name, secret in secrets.items() if secret in shown]


def test_start_leaves_alone_what_runs(team_server: TeamServer) -> None:
    pid = (team_server.home / "sockets/mlflow.pid").read_text()
    assert team_server.command("start").count("running") == 3
    assert (team_server.home / "sockets/mlflow.pid").read_text() == pid


def test_strangers_get_nothing(team_server: TeamServer) -> None:
    route = f"{team_server.uri}/api/2.0/mlflow/experiments/search"
    trusted = str(team_server.certificate)
    assert requests.post(route, json={"max_results": 1}, verify=trusted).status_code == 401
    wrong = ("admin", "password1234")  # the default of MLflow's before 3.6
    assert requests.post(route, json={"max_results": 1}, verify=trusted, auth=wrong).status_code == 401
    plain = requests.get(f"http://localhost:{team_server.port}/health")
    assert plain.status_code == 400
    with pytest.raises(urllib.error.URLError, match="self-signed"):
        urllib.request.urlopen(f"{team_server.uri}/health", context=ssl.create_default_context())


def test_a_team_edits_its_experiment_and_others_only_read_it(
    team_server: TeamServer, as_user: Callable[..., MlflowClient]
) -> None:
    make = {"alice": team_server.command, "bob": team_server.account}
    passwords = {name: command("add-user", name).strip() for name, command in make.items()}
    assert passwords["alice"] != passwords["bob"]
    team_server.account("add-team", "vision")
    team_server.account("join", "vision", "alice")
    team_server.command("grant", "--team", "vision", "EDIT", "detectors")
    experiment = as_user("alice", passwords["alice"]).get_experiment_by_name("detectors")
    run = as_user("alice", passwords["alice"]).create_run(experiment.experiment_id)
    bob = as_user("bob", passwords["bob"])
    assert bob.get_run(run.info.run_id).info.status == "RUNNING"
    with pytest.raises(MlflowException, match="Permission denied"):
        bob.create_run(experiment.experiment_id)
    shown = team_server.command("users").splitlines()
    assert "team vision: alice; EDIT on detectors" in shown
    assert "user alice; teams: vision" in shown
    # A grant replaces the one before it; leaving the team ends it.
    team_server.account("grant", "--team", "vision", "MANAGE", "detectors")
    assert "team vision: alice; MANAGE on detectors" in team_server.account("users")
    team_server.account("leave", "vision", "alice")
    with pytest.raises(MlflowException, match="Permission denied"):
        as_user("alice", passwords["alice"]).set_tag(run.info.run_id, "a", "b")
    team_server.account("grant", "--user", "bob", "EDIT", "detectors")
    as_user("bob", passwords["bob"]).set_tag(run.info.run_id, "a", "b")
    team_server.account("revoke", "--user", "bob", "detectors")
    with pytest.raises(MlflowException, match="Permission denied"):
        as_user("bob", passwords["bob"]).set_tag(run.info.run_id, "a", "c")
    # The same from another machine, through the proxy.
    elsewhere = ("--uri", team_server.uri, "users")
    assert team_server.command(*elsewhere, env=team_server.credentials()) == team_server.account("users")
    by_alice = team_server.run(*elsewhere, env=team_server.credentials("alice", passwords["alice"]))
    assert "only an administrator may do this" in by_alice.stderr
    refusal = team_server.run("join", "nlp", "bob").stderr
    assert "no such team. Allowed: " in refusal
    assert "vision" in refusal
    team_server.command("set-password", "bob", "--password-stdin", input="a longer password\n")
    as_user("bob", "a longer password").search_experiments()
    team_server.account("remove-user", "bob")
    assert "bob" not in team_server.account("users")


def test_what_cannot_be_is_said(team_server: TeamServer, tmp_path: Path) -> None:
    for words, said in {
        ("init", "--listen", "8443"): "Allowed: ADDRESS:PORT",
        ("init", "--certificate", "nowhere.pem"): "give both or neither",
        ("grant", "--user", "nobody-such", "EDIT", "detectors"): "not found",
        ("add-user", "admin"): "admin: is a user already. Next: set-password admin",
    }.items():
        done = team_server.run(*words)
        assert done.returncode == 1
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert "SQL" not in done.stderr
    elsewhere = team_server.run("start", home=tmp_path / "nothing")
    assert elsewhere.returncode == 1
    assert "no server here" in elsewhere.stderr
    long = team_server.run("init", *(("--run-as", "root") if os.geteuid() == 0 else ()), home=tmp_path / ("x" * 100))
    assert "too long for a Unix socket" in long.stderr


@pytest.fixture(scope="module")
def recorded(team_server: TeamServer) -> Iterator[dict[str, Any]]:
    """Runs with everything a run has, written through the proxy, and a user."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in team_server.credentials().items():
            patch.setenv(key, value)
        client = MlflowClient(team_server.uri)
        experiment = client.create_experiment("kept")
        for number in range(3):
            run = client.create_run(experiment).info.run_id
            metrics = [Metric(f"m{key}", step / (key + number + 1), 1_700_000_000_000 + step, step)
                       for key in range(4) for step in range(200)]  # fmt: skip
            client.log_batch(run, metrics, [Param("seed", str(number))], [RunTag("env.driver", "580.1")])
            client.log_text(run, "x" * 100_000 + str(number), "worker.log")
            client.set_terminated(run, ("FINISHED", "FAILED", "KILLED")[number])
        password = team_server.account("add-user", "carol").strip()
        yield {"carol": password, "content": content(team_server)}


def server_of(server: TeamServer) -> Server:
    return Server(load(server.home))


def content(server: TeamServer) -> dict[str, Any]:
    """Every row of every table of both databases, and every artifact."""
    database = server_of(server).database
    rows: dict[str, Any] = {}
    for name in ("tracking", "auth"):
        tables = database.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1", name)
        for table in tables.split():
            rows[f"{name}.{table}"] = sorted(database.sql(f'SELECT * FROM "{table}"', name).splitlines())
    artifacts = server.home / "artifacts"
    files = sorted(path for path in artifacts.rglob("*") if path.is_file())
    return rows | {"artifacts": {str(path.relative_to(artifacts)): path.read_bytes() for path in files}}


@pytest.mark.exhaustive
def test_kill_9_then_upgrade_with_its_backup(team_server: TeamServer, recorded: dict[str, Any]) -> None:
    pid = int((team_server.home / "sockets/mlflow.pid").read_text().split()[0])
    os.killpg(pid, signal.SIGKILL)
    status = team_server.run("status")
    assert status.returncode == 1
    assert status.stdout.splitlines() == ["PostgreSQL: running", "MLflow: down", "nginx: running"]
    said = team_server.command("upgrade")
    backup = Path(said.splitlines()[0].rpartition(": ")[2])
    assert {path.name for path in backup.iterdir()} == {"tracking.dump", "auth.dump", "identity.tar", "manifest.json"}
    assert said.count("running") == 3
    assert content(team_server) == recorded["content"]


def test_a_server_is_restored_from_its_backup_alone(
    team_server: TeamServer, recorded: dict[str, Any], as_user: Callable[..., MlflowClient],
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    before = content(team_server)
    assert len(before["tracking.metrics"]) >= 2400
    assert len(before["artifacts"]) >= 3
    # Beside the server's folder, which is destroyed; and made while it is kept running by `run`.
    backup = team_server.home.parent / "backup"
    parent, mode = team_server.home.parent, team_server.home.parent.stat().st_mode
    request.addfinalizer(lambda: parent.chmod(mode))  # Other tests have folders of their own there.
    parent.chmod(0o777)
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "deploy.native", "--home", str(team_server.home), "run"],
        cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert supervisor.stdout
    os.kill(int((team_server.home / "nginx/group.pid").read_text().split()[0]), signal.SIGKILL)
    assert "starting nginx" in supervisor.stdout.readline()
    team_server.command("backup", str(backup))
    assert "exists already" in team_server.run("backup", str(backup)).stderr
    supervisor.terminate()
    assert supervisor.wait(HANGS_SEC) == 0
    assert team_server.run("status").stdout.count("down") == 3
    assert "has a server already" in team_server.run("restore", str(backup)).stderr

    shutil.rmtree(team_server.home)
    assert "no server here" in team_server.run("start").stderr
    who = ("--run-as", backup.owner()) if os.geteuid() == 0 else ()
    team_server.command("restore", str(backup), *who)
    assert content(team_server) == before
    client = as_user("carol", recorded["carol"])
    experiment = client.get_experiment_by_name("kept")
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.info.status for run in runs) == ["FAILED", "FINISHED", "KILLED"]
    first = next(run for run in runs if run.data.params["seed"] == "0")
    assert [metric.value for metric in client.get_metric_history(first.info.run_id, "m1")] == [
        s / 2 for s in range(200)
    ]
    # The proxy serves the artifact, with the certificate that the clients have.
    path = Path(client.download_artifacts(first.info.run_id, "worker.log"))
    assert path.read_text() == "x" * 100_000 + "0"

    with (backup / "tracking.dump").open("r+b") as file:
        file.seek(1000)
        file.write(b"?")
    assert "is damaged" in team_server.run("restore", str(backup), "--overwrite").stderr
    wait_for(lambda: all(service.running() for service in server_of(team_server).services.values()))
    assert content(team_server) == before
