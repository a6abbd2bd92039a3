"""Whether a user may write to an experiment on a server with MLflow's basic-auth app, and who can grant it.

MLflow's permissions are READ, EDIT and MANAGE (mlflow.server.auth.permissions). A run needs EDIT on its experiment.
mlflow.server.auth.routes defines the routes. A server without one of them gives no reason, so nothing is refused.
"""

from __future__ import annotations

from typing import Any

from tracking.store.server import connection

MAY_WRITE = ("EDIT", "MANAGE")


def ask(uri: str, route: str, **query: str) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the JSON of an answer; {} if it is not a JSON object."""
    response = connection.request(uri, "GET", f"api/{route}", params=query)
    try:
        return response.status_code, dict(response.json())
    except ValueError:
        return response.status_code, {}


def why_no_write(uri: str, experiment: str) -> str | None:
    """Why this user cannot write to the experiment, with the next step; None if no reason is known."""
    status, current = ask(uri, "2.0/mlflow/users/current")
    if status != 200 or "user" not in current or current["user"]["is_admin"]:
        return None
    user = current["user"]["username"]
    status, answer = ask(uri, "2.0/mlflow/experiments/get-by-name", experiment_name=experiment)
    if status == 403:
        return _explanation(uri, user, "no permission", experiment)
    if status != 200:  # the experiment will be made
        return None
    experiment_id = str(answer["experiment"]["experiment_id"])
    query = {"username": user, "resource_type": "experiment", "resource_id": experiment_id}
    status, answer = ask(uri, "3.0/mlflow/users/permissions/get", **query)
    if status != 200 or answer.get("permission") in MAY_WRITE:
        return None
    return _explanation(uri, user, answer["permission"], experiment)


def _explanation(uri: str, user: str, permission: str, experiment: str) -> str:
    users = ask(uri, "2.0/mlflow/users/list")[1].get("users", [])
    admins = [f"{other['username']} (administrator)" for other in users if other["is_admin"]]
    return (
        f"the user {user} has {permission} on the experiment {experiment!r}, and a run needs EDIT. "
        f"{' or '.join(admins) or 'The administrator'} can grant it, and so can anybody with MANAGE on it. Next: ask "
        "for EDIT, give another tracking.experiment, or train now with tracking.offline=true"
    )
