"""Whether a user may write to an experiment of a server with MLflow's basic-auth app, and who can allow it.

MLflow's permissions are READ, EDIT and MANAGE (mlflow.server.auth.permissions); a run needs EDIT on its experiment. The
routes are those of mlflow.server.auth.routes: where a server has none of them, or its version lacks one, nothing is
known, and nothing is refused.
"""

from __future__ import annotations

from typing import Any

from tracking.store.server import connection

MAY_WRITE = ("EDIT", "MANAGE")


def ask(uri: str, route: str, **query: str) -> tuple[int, dict[str, Any]]:
    """HTTP status and JSON of an answer; {} for JSON that is none."""
    response = connection.request(uri, "GET", f"api/{route}", params=query)
    try:
        return response.status_code, dict(response.json())
    except ValueError:
        return response.status_code, {}


def problem(uri: str, experiment: str) -> str | None:
    """What keeps this user from writing to the experiment, as a sentence with the next step; None for nothing known."""
    status, me = ask(uri, "2.0/mlflow/users/current")
    if status != 200 or "user" not in me or me["user"]["is_admin"]:
        return None
    user = me["user"]["username"]
    status, known = ask(uri, "2.0/mlflow/experiments/get-by-name", experiment_name=experiment)
    if status == 403:
        return _sentence(uri, user, "no permission", experiment)
    if status != 200:  # the experiment will be made
        return None
    experiment_id = str(known["experiment"]["experiment_id"])
    query = {"username": user, "resource_type": "experiment", "resource_id": experiment_id}
    status, answer = ask(uri, "3.0/mlflow/users/permissions/get", **query)
    if status != 200 or answer.get("permission") in MAY_WRITE:
        return None
    return _sentence(uri, user, answer["permission"], experiment)


def _sentence(uri: str, user: str, permission: str, experiment: str) -> str:
    users = ask(uri, "2.0/mlflow/users/list")[1].get("users", [])
    admins = [f"{each['username']} (administrator)" for each in users if each["is_admin"]]
    return (
        f"the user {user} has {permission} on the experiment {experiment!r}, and a run needs EDIT. "
        f"{' or '.join(admins) or 'The administrator'} can grant it, and so can who has MANAGE on it; or choose "
        "another tracking.experiment, or train now with tracking.offline=true"
    )
