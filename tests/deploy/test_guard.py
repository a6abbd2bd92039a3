"""The rights of users, and of people without a password, on a server: real requests to all of MLflow's routes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from deploy.guard import routes
from deploy.native.services import AUTH_INI
from tests.support.commands import ROOT, environment
from tests.support.team_server import Asker, TeamServer

pytestmark = [pytest.mark.service, pytest.mark.slow]
MARK = "only-for-those-who-may-read"  # in everything that is written to the experiment
TEAM = "a-team-of-others"  # with a permission on the experiment, and a member


def alone(folder: Path) -> dict[str, str]:
    """The environment of MLflow's application without a server, its databases in the folder."""
    (folder / "auth.ini").write_text(AUTH_INI.format(default_permission="READ", uri=f"sqlite:///{folder}/auth.db"))
    return environment(
        MLFLOW_AUTH_CONFIG_PATH=str(folder / "auth.ini"), MLFLOW_AUTH_ADMIN_PASSWORD="only to list routes",
        MLFLOW_FLASK_SERVER_SECRET_KEY="x" * 40, MLFLOW_BACKEND_STORE_URI=f"sqlite:///{folder}/runs.db",
        _MLFLOW_SGI_NAME="uvicorn", PYTHONWARNINGS="ignore",
    )  # fmt: skip


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What tests/deploy/installed_routes.py tells of the installed MLflow."""
    environ = alone(tmp_path_factory.mktemp("routes"))
    command = [sys.executable, "-m", "tests.deploy.installed_routes"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.fixture(scope="module")
def installed(application: dict[str, Any]) -> list[tuple[str, str]]:
    """Method and rule of each route of the installed MLflow, listed by MLflow itself."""
    return [(method, rule) for method, rule in application["routes"]]


def test_every_route_of_the_installed_mlflow_was_decided_on(installed: list[tuple[str, str]]) -> None:
    new = [
        f"{method} {rule}"
        for method, rule in installed
        if not (routes.requirement(method, rule) or routes.is_closed(rule))
    ]
    assert not new, "MLflow has routes that deploy/guard/routes.py does not know: put each under OPEN or CLOSED there"
    served = {(method, routes.normalized(rule)) for method, rule in installed}
    assert not set(routes.REQUIREMENTS) - served, "deploy/guard/routes.py has routes that MLflow lacks"
    for prefix in routes.CLOSED_PREFIXES:
        assert any(rule.startswith(prefix) for _, rule in served), f"{prefix}: MLflow lacks it"
    assert len(installed) > 400


# --------------------------------------------------------------------------------- one experiment, and who may do what


class Shared:
    """An experiment, h200, with a run; and users with each permission on it."""

    def __init__(self, server: TeamServer, installed: list[tuple[str, str]]) -> None:
        self.server = server
        self._rules = {rule for _, rule in installed}
        self.admin = Asker(server, "admin", server.admin_password)
        self.stranger = Asker(server)
        self.users: dict[str, Asker] = {}
        self.experiment = server.accounts.experiment_id("guarded")
        for permission in ("READ", "EDIT", "MANAGE", "DENY"):
            name = f"has-{permission.lower()}"
            password = server.account("add-user", name).strip()
            server.account("grant", "--user", name, permission, "guarded")
            self.users[permission] = Asker(server, name, password)
        self.run = self.new_run()
        server.account("add-team", TEAM)
        server.account("join", TEAM, "has-edit")
        server.account("grant", "--team", TEAM, "READ", "guarded")
        self.team = server.accounts.teams()[TEAM]

    def new_run(self) -> str:
        tags = [{"key": "tag", "value": MARK}]
        values = {"experiment_id": self.experiment, "run_name": MARK, "tags": tags}
        answer = self.admin("POST", "/api/2.0/mlflow/runs/create", json=values)
        run = str(answer.json()["run"]["info"]["run_id"])
        metric = {"run_id": run, "key": MARK, "value": 1, "timestamp": 1, "step": 1}
        assert self.admin("POST", "/api/2.0/mlflow/runs/log-metric", json=metric).ok
        dataset = {"name": MARK, "digest": "d", "source_type": "local", "source": "{}"}
        inputs = {"run_id": run, "datasets": [{"dataset": dataset, "tags": []}]}
        assert self.admin("POST", "/api/2.0/mlflow/runs/log-inputs", json=inputs).ok
        path = f"/api/2.0/mlflow-artifacts/artifacts/{self.experiment}/{run}/artifacts/{MARK}.txt"
        assert self.admin("PUT", path, data=MARK.encode()).ok
        return run

    def paths(self, rule: str) -> list[str]:
        """A rule as clients and as the pages ask for it, where MLflow has both, with its parameters filled in."""
        written = {rule, f"/{rule}", f"/ajax-{rule}"} & self._rules
        artifact = f"{self.experiment}/{self.run}/artifacts/{MARK}.txt"
        return [re.sub("<[^>]+>", "x", path.replace("<path:artifact_path>", artifact)) for path in sorted(written)]

    def values(self, rule: str) -> dict[str, Any]:
        """The body of this rule's request, complete enough for MLflow to carry it out if allowed."""
        run = {"run_id": self.run, "run_uuid": self.run}
        experiments = {"experiment_id": self.experiment, "experiment_ids": [self.experiment]}
        metric = {"key": "k", "value": 1, "timestamp": 2, "step": 2}
        location = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": self.experiment}}
        grant = {"username": "has-read", "resource_type": "experiment", "resource_id": self.experiment}
        last = rule.removeprefix("api/2.0/mlflow/").removeprefix("api/3.0/mlflow/")
        by_route: dict[str, dict[str, Any]] = {
            "experiments/get-by-name": {"experiment_name": "guarded"},
            "experiments/search": {"max_results": 1000},
            "experiments/update": {**experiments, "new_name": "guarded"},
            "experiments/set-experiment-tag": {**experiments, "key": "k", "value": "v"},
            "experiments/delete-experiment-tag": {**experiments, "key": "k"},
            "metrics/get-history": {**run, "metric_key": MARK},
            "metrics/get-history-bulk": {"run_id": self.run, "metric_key": MARK},
            "metrics/get-history-bulk-interval": {"run_ids": [self.run], "metric_key": MARK},
            "/get-artifact": {**run, "path": f"{MARK}.txt"},
            "api/2.0/mlflow-artifacts/artifacts": {"path": f"{self.experiment}/{self.run}/artifacts"},
            "traces/search": {"locations": [location]},
            "/graphql": {"query": self.graphql()},
            "runs/create": experiments,
            "runs/update": {**run, "status": "RUNNING"},
            "runs/log-metric": {**run, **metric},
            "runs/log-parameter": {**run, "key": "p", "value": "v"},
            "runs/log-batch": {**run, "metrics": [metric]},
            "runs/log-inputs": {**run, "datasets": []},
            "runs/set-tag": {**run, "key": "k", "value": "v"},
            "runs/delete-tag": {**run, "key": "k"},
            "users/permissions/grant": {**grant, "permission": "READ"},
            "users/permissions/revoke": grant,
        }
        return by_route.get(last, {**run, **experiments})

    def graphql(self) -> str:
        run = "{info{runId runName} data{tags{key value} metrics{key}} experiment{name}}"
        return f"""query {{
            mlflowGetRun(input: {{runId: "{self.run}"}}) {{run {run}}}
            mlflowGetExperiment(input: {{experimentId: "{self.experiment}"}}) {{experiment {{name}}}}
            mlflowListArtifacts(input: {{runId: "{self.run}"}}) {{files {{path}}}}
            mlflowSearchRuns(input: {{experimentIds: ["{self.experiment}"]}}) {{runs {run}}}
        }}"""

    def ask(self, who: Asker, method: str, rule: str, path: str) -> requests.Response:
        values = self.values(rule)
        return who(method, path, **({"params": values} if method in ("GET", "DELETE") else {"json": values}))


@pytest.fixture(scope="module")
def shared(team_server: TeamServer, installed: list[tuple[str, str]]) -> Shared:
    return Shared(team_server, installed)


def of_kind(kind: str) -> list[tuple[str, str]]:
    return [(method, rule) for (method, rule), needed in routes.REQUIREMENTS.items() if needed == kind]


# An empty answer is the right one here: a listing over experiments, which shows what the user may see.
LISTINGS = (
    "experiments/search", "runs/search", "search-datasets", "logged-models/search", "traces/search",
    "registered-models/search", "model-versions/search", "/graphql", "artifacts",
)  # fmt: skip
# This server cannot make the objects of these routes, so their answers are empty for everyone.
EMPTY = ("logged-models/search", "traces/search", "registered-models/search", "model-versions/search")


@pytest.mark.parametrize(("method", "rule"), of_kind(routes.READ))
def test_reading_takes_read_and_deny_denies(shared: Shared, method: str, rule: str) -> None:
    for path in shared.paths(rule):
        assert shared.ask(shared.stranger, method, rule, path).status_code == 401, path
        answer = shared.ask(shared.users["READ"], method, rule, path)
        if "presigned" in rule:  # S3 alone has these.
            assert answer.status_code not in (401, 403), answer.text
        else:
            assert answer.status_code == 200, f"{path}: {answer.text}"
            known = MARK in answer.text or shared.run in answer.text or '"guarded"' in answer.text
            assert known or rule.endswith(EMPTY), f"{path}: {answer.text}"
        denied = shared.ask(shared.users["DENY"], method, rule, path)
        assert denied.status_code in ((200, 403) if rule.endswith(LISTINGS) else (403,)), f"{path}: {denied.text}"
        assert not re.search(f'{MARK}|{shared.run}|"guarded"', denied.text), f"{path}: {denied.text}"


@pytest.mark.parametrize(("method", "rule"), of_kind(routes.EDIT))
def test_writing_takes_edit(shared: Shared, method: str, rule: str) -> None:
    for path in shared.paths(rule):
        assert shared.ask(shared.stranger, method, rule, path).status_code == 401, path
        for permission in ("READ", "DENY"):
            answer = shared.ask(shared.users[permission], method, rule, path)
            assert answer.status_code == 403, f"{permission} {path}: {answer.text}"
        if rule.endswith(("set-experiment-tag", "runs/set-tag")) or not rule.endswith("-tag"):
            answer = shared.ask(shared.users["EDIT"], method, rule, path)
            assert answer.status_code == 200 or "/mpu/" in rule, f"{path}: {answer.text}"


@pytest.mark.parametrize(("method", "rule"), of_kind(routes.MANAGE))
def test_deleting_and_granting_take_manage(shared: Shared, method: str, rule: str) -> None:
    for path in shared.paths(rule):
        assert shared.ask(shared.stranger, method, rule, path).status_code == 401, path
        for permission in ("READ", "DENY", "EDIT"):
            answer = shared.ask(shared.users[permission], method, rule, path)
            assert answer.status_code == 403, f"{permission} {path}: {answer.text}"


def test_what_is_open_to_all_users_shows_nothing_of_an_experiment(shared: Shared) -> None:
    for kind, strangers in ((routes.USER, 401), (routes.ANYBODY, 200)):
        for method, rule in of_kind(kind):
            for path in shared.paths(rule):
                if "<" not in rule and "experiments/create" not in rule:
                    assert shared.ask(shared.stranger, method, rule, path).status_code == strangers, path
                answer = shared.ask(shared.users["DENY"], method, rule, path)
                assert MARK not in answer.text
                assert shared.run not in answer.text
                assert TEAM not in answer.text


def test_graphql_answers_no_field_to_who_is_denied(shared: Shared) -> None:
    """Every field of the schema, so that a new one fails here until its question stands below."""
    from mlflow.server.graphql.graphql_schema_extensions import schema

    run, experiment = f'runId: "{shared.run}"', f'"{shared.experiment}"'
    runs = f"mlflowSearchRuns(input: {{experimentIds: [{experiment}]}}) {{runs {{info {{runId}}}}}}"
    metrics = f'runIds: ["{shared.run}"], metricKey: "{MARK}"'
    asked = {
        "query": {
            "mlflowGetRun": f"mlflowGetRun(input: {{{run}}}) {{run {{info {{runName}}}}}}",
            "mlflowGetExperiment": "mlflowGetExperiment"
            f"(input: {{experimentId: {experiment}}}) {{experiment {{name}}}}",
            "mlflowListArtifacts": f"mlflowListArtifacts(input: {{{run}}}) {{files {{path}}}}",
            "mlflowGetMetricHistoryBulkInterval": "mlflowGetMetricHistoryBulkInterval"
            f"(input: {{{metrics}}}) {{metrics {{key}}}}",
            "mlflowSearchRuns": runs,
        },
        "mutation": {
            "mlflowSearchRuns": runs,
            "mlflowSearchDatasets": f"mlflowSearchDatasets(input: {{experimentIds: [{experiment}]}}) "
            "{datasetSummaries {name}}",
        },
    }
    # What has no experiment behind it: echoes, and the model registry, in which nothing can be made here.
    nobodys = {"test", "testMutation", "mlflowSearchModelVersions"}
    for kind, root in (("query", schema.graphql_schema.query_type), ("mutation", schema.graphql_schema.mutation_type)):
        assert set(root.fields) - nobodys == set(asked[kind])
        for field, question in asked[kind].items():
            for text in (question, question.replace(field, f"other: {field}", 1)):
                said = {"query": f"{kind} {{{text}}}"}
                seen = [shared.users[who]("POST", "/graphql", json=said).text for who in ("READ", "DENY")]
                known = [MARK in words or shared.run in words or '"guarded"' in words for words in seen]
                assert known == [True, False], f"{field}: {seen}"


def test_closed_routes_are_closed_to_everybody(shared: Shared, installed: list[tuple[str, str]]) -> None:
    closed = [(method, rule) for method, rule in installed if routes.requirement(method, rule) is None]
    assert len(closed) > 200
    for number, (method, rule) in enumerate(closed):
        path = re.sub(r"[<{][^>}]+[>}]", "1", rule)
        others = number % 8 == 0  # What the administrator may not do, nobody may; others try some of it.
        if others:
            assert shared.ask(shared.stranger, method, rule, path).status_code in (401, 403, 404), path
        for who in (shared.admin, *[shared.users["MANAGE"]] * others):
            answer = shared.ask(who, method, rule, path)
            assert answer.status_code == 403, f"{method} {path}: {answer.status_code} {answer.text[:300]}"
            assert "switched off" in answer.text, f"{method} {path}: {answer.text[:300]}"


@pytest.mark.parametrize("ending", ["/health?", "?", "#", "/static-files/?", "@localhost/", "\\health?"])
def test_no_host_header_names_another_path(shared: Shared, ending: str) -> None:
    """MLflow puts a URL together of that header and the path, and asks the guard about it."""
    host = {"Host": f"localhost:{shared.server.port}{ending}"}
    path = f"/api/2.0/mlflow-artifacts/artifacts/{shared.experiment}/{shared.run}/artifacts/{MARK}.txt"
    for who in (shared.stranger, shared.users["DENY"], shared.users["READ"]):
        for method, target in (("GET", path), ("PUT", "/api/2.0/mlflow-artifacts/artifacts/x"), ("GET", "/v1/traces")):
            answer = who(method, target, headers=host)
            assert answer.status_code >= 400, f"{method} {target}: {answer.text}"
            assert answer.text != MARK  # the artifact


def test_a_route_that_nobody_knows_is_refused(application: dict[str, Any]) -> None:
    """As a new version of MLflow would bring it: one of Flask's, and one of FastAPI's that goes past Flask."""
    assert application["answers"] == ["flask 401", "flask 403", "fastapi 403", "fastapi 403", "known 200"]


# ------------------------------------------------------------------------------------------ where artifacts are written


@pytest.mark.parametrize("api", ["api", "ajax-api"])
@pytest.mark.parametrize(
    "body",
    [
        '{"name": "NAME", "artifact_location": "file:///etc"}',
        '{"name": "NAME", "artifactLocation": "file:///etc"}',
        '{"name": "NAME", "artifact_location": "", "artifact_location": "FILE:///etc"}',
        '{"name": "NAME", "artifact\\u005flocation": "/etc"}',
        '"{\\"name\\": \\"NAME\\", \\"artifact_location\\": \\"/etc\\"}"',
        '{"name": "NAME", "artifact_location": "s3://team-bucket/others"}',
        '{"name": "NAME", "artifact_location": "mlflow-artifacts:/1/another/artifacts"}',
        '{"artifact_location": "/etc", "unknown": 1, "name": "NAME", "tags": 5}',
    ],
)
def test_no_client_says_where_artifacts_are_kept(shared: Shared, api: str, body: str) -> None:
    name = f"elsewhere-{api}-{time.monotonic_ns()}"
    path = f"/{api}/2.0/mlflow/experiments/create"
    for who in (shared.users["READ"], shared.admin):
        for kind in ("application/json", "application/json; charset=utf-8"):
            answer = who("POST", path, data=body.replace("NAME", name), headers={"Content-Type": kind})
            assert answer.status_code == 400, answer.text
            assert "this server chooses where artifacts are kept" in answer.json()["message"]
    assert shared.users["READ"]("POST", path, data=body.replace("NAME", name)).status_code >= 400
    answer = shared.admin("GET", "/api/2.0/mlflow/experiments/get-by-name", params={"experiment_name": name})
    assert answer.status_code == 404
    assert shared.users["READ"]("POST", path, json={"name": name}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "",
        "?path=",
        "?path=.",
        "?path=/",
        "/",
        "/x.txt",
        "/models/x.txt",
        "/%2e%2e/x",
        "/x%2f1",
        "/1%2f..%2f2/x",
        "/%201/x",
        "/01/x",
        "/%31/x%00",
        "/%25201/x",
        "?path=%201",
        "?path=01",
    ],
)
def test_the_root_of_the_artifacts_is_nobody_s(shared: Shared, path: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = shared.users["MANAGE"](method, f"/api/2.0/mlflow-artifacts/artifacts{path}", data=b"")
        assert answer.status_code in (400, 403, 404, 405), f"{method} {path}: {answer.text}"


def test_the_server_writes_only_in_its_own_folders(shared: Shared, tmp_path: Path) -> None:
    """Even where an experiment has another location, from before: by its process, and not by its user."""
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    opened = {folder: folder.stat().st_mode for folder in (open_to_all, *list(open_to_all.parents)[:3])}
    for folder in opened:
        with suppress(PermissionError):
            folder.chmod(0o777)
    kept = shared.server.home / "tmp"
    program = (
        "import sys, pathlib\nfor folder in sys.argv[1:]:\n"
        "    try: pathlib.Path(folder, 'x').write_text('x'); print('yes')\n"
        "    except PermissionError: print('no')\n"
    )
    command = [sys.executable, "-m", "deploy.native.confine", str(kept), "--", sys.executable, "-c", program]
    try:
        done = subprocess.run([*command, str(open_to_all), str(kept)], cwd=ROOT, capture_output=True, text=True)
    finally:
        for folder, mode in opened.items():  # Other tests have folders of their own below.
            with suppress(PermissionError):
                folder.chmod(mode)
    assert done.stdout.split() == ["no", "yes"], done.stderr
    (kept / "x").unlink()
    # And that the server itself is started so.
    for pid in processes(shared.server):
        assert "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()


def processes(server: TeamServer) -> list[int]:
    group = (server.home / "sockets/mlflow.pid").read_text().split()[0]
    stats = (path / "stat" for path in Path("/proc").glob("[0-9]*"))
    pids = []
    for stat in stats:
        with suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[2] == group:
                pids.append(int(stat.parent.name))
    assert len(pids) > 2
    return pids
