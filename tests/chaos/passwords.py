"""A server with accounts whose password is changed in the middle of a run."""

from __future__ import annotations

import time

import requests

from tests.chaos import count
from tests.chaos.case import Case, Kind
from tests.support.faulty_proxy import FaultyProxy
from tests.support.mlflow_server import MlflowServer

OLD, NEW = "the-old-password", "the-new-password"
ASK_SEC = 60.0


def play(case: Case) -> None:
    """With the old password nothing goes up any more; with the new one everything does, and exactly."""
    folder = case.cwd / "server"
    folder.mkdir()
    with MlflowServer(folder, admin_password=OLD) as server, FaultyProxy(server.port) as proxy:
        uri = proxy.uri
        launcher = case.quick(
            *({"then": "finish", "rows": 400, "sec": 0.02} for _ in range(2)), uri=uri, WAIT_SEC="3",
            **credentials(uri, OLD),
        )  # fmt: skip
        case.wait(lambda: count.folders(case.cwd)[1:], launcher)
        time.sleep(after := case.rng.uniform(0, 12))
        change_password(server)
        requests_before = len(proxy.times)
        case.tell(f"changed {after:.1f} s into the first job{'' if launcher.alive else ', too late'}")
        launcher.end()
        case.tell(f"{len(proxy.times) - requests_before} requests after that")
        case.wait_until_gone()
        if case.variant == "first with the old one":
            case.require(refused(case, uri), "sync with the old password did not fail")
        case.sync(**credentials(uri, NEW))
        case.compare(server)


def credentials(uri: str, password: str) -> dict[str, str]:
    return {"MLFLOW_TRACKING_URI": uri, "MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": password}


def change_password(server: MlflowServer) -> None:
    answer = requests.patch(
        f"{server.uri}/api/2.0/mlflow/users/update-password",
        json={"username": "admin", "password": NEW, "current_password": OLD},
        auth=("admin", OLD),
        timeout=ASK_SEC,
    )
    answer.raise_for_status()


def refused(case: Case, uri: str) -> bool:
    """Whether sync refuses the old password. Also True if everything was uploaded before the change."""
    sync = case.start_sync(**credentials(uri, OLD))
    code = sync.end()
    return ("401" in sync.output and code == 1) or "failed: " not in sync.output


PASSWORD = Kind("password", ["at once", "first with the old one"], play)
