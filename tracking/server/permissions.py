"""Whether a user may write to an experiment of a server with MLflow's basic-auth app, and who can allow it.

MLflow's permissions are READ, EDIT and MANAGE (mlflow.server.auth.permissions); a run needs EDIT on its experiment. The
routes are those of mlflow.server.auth.routes: where a server has none of them, or its version lacks one, nothing is
known, and nothing is refused.
"""

from __future__ import annotations

import re
from typing import Any

from tracking.server import connection

MAY_WRITE = ("EDIT", "MANAGE")
WORKSPACE = "default"  # what a server without workspaces calls its only one
ROLE_OF_A_USER = re.compile(r"__user_(\d+)__")  # the role that holds what was granted to a user alone


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
        return _sentence(uri, user, "no permission", experiment, None)
    if status != 200:  # the experiment will be made
        return None
    experiment_id = str(known["experiment"]["experiment_id"])
    query = {"username": user, "resource_type": "experiment", "resource_id": experiment_id}
    status, answer = ask(uri, "3.0/mlflow/users/permissions/get", **query)
    if status != 200 or answer.get("permission") in MAY_WRITE:
        return None
    return _sentence(uri, user, answer["permission"], experiment, experiment_id)


def _sentence(uri: str, user: str, permission: str, experiment: str, experiment_id: str | None) -> str:
    holders = who_can_grant(uri, experiment_id)
    return (
        f"the user {user} has {permission} on the experiment {experiment!r}, and a run needs EDIT. "
        f"{' or '.join(holders) or 'The administrator'} can grant it; or choose another tracking.experiment, or train "
        "now with tracking.offline=true"
    )


def who_can_grant(uri: str, experiment_id: str | None) -> list[str]:
    """The users who can, as far as this one may know: those with MANAGE on the experiment, then administrators."""
    users = ask(uri, "2.0/mlflow/users/list")[1].get("users", [])
    names = {user["id"]: user["username"] for user in users}
    admins = [user["username"] for user in users if user["is_admin"]]
    roles = ask(uri, "3.0/mlflow/roles/list", workspace=WORKSPACE)[1].get("roles", []) if experiment_id else []
    managers = []
    for role in roles:
        if any(_manages(permission, experiment_id) for permission in role["permissions"]):
            match = ROLE_OF_A_USER.fullmatch(role["name"])
            managers.append(names.get(int(match[1]), "") if match else f"a member of the team {role['name']}")
    managers = [f"{name} (MANAGE on it)" for name in managers if name and name not in admins]
    return managers + [f"{name} (administrator)" for name in admins]


def _manages(permission: dict[str, Any], experiment_id: str | None) -> bool:
    resource = (permission["resource_type"], permission["resource_pattern"])
    return permission["permission"] == "MANAGE" and resource in {("experiment", experiment_id), ("experiment", "*")}
