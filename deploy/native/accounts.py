"""Users, teams and permissions, through the REST API of MLflow's basic-auth app (mlflow.server.auth.routes).

A team is a role of MLflow's: permissions are granted to the role, users are assigned to it.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import secrets
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from deploy.native.services import UnixConnection
from deploy.native.settings import ServerError

WORKSPACE = "default"  # what a server without workspaces calls its only one
GRANTABLE = ("READ", "EDIT", "MANAGE", "DENY")
MIN_PASSWORD_CHARS = 12  # mlflow.utils.validation._validate_password


def over_socket(socket: Path, admin_password: str) -> Accounts:
    """The accounts of a server on this machine, as its administrator, past the proxy."""
    return Accounts(lambda: UnixConnection(socket), "admin", admin_password)


def over_https(uri: str) -> Accounts:
    """The accounts of any server, as the user of MLflow's variables, who has to be an administrator for most of it."""
    user, password = (os.environ.get(f"MLFLOW_TRACKING_{name}") for name in ("USERNAME", "PASSWORD"))
    parts = urlsplit(uri)
    if parts.scheme != "https" or not parts.hostname or not user or not password:
        raise ServerError("--uri: give https://HOST:PORT, and MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD")
    context = ssl.create_default_context(cafile=os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH"))
    host, port = parts.hostname, parts.port or 443
    return Accounts(lambda: http.client.HTTPSConnection(host, port, timeout=60, context=context), user, password)


class AlreadyThereError(ServerError):
    """What was to be made exists."""


class Accounts:
    def __init__(self, connect: Callable[[], http.client.HTTPConnection], user: str, password: str) -> None:
        self._connect = connect
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}

    def call(self, method: str, route: str, version: str = "2.0", **values: object) -> dict[str, Any]:
        """One request. Raises ServerError with MLflow's message."""
        path = f"/api/{version}/mlflow/{route}"
        body = None if method == "GET" else json.dumps(values)
        connection = self._connect()
        try:
            connection.request(method, f"{path}?{urlencode(values)}" if method == "GET" else path, body, self._headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read().decode()
        except OSError as error:
            raise ServerError(f"MLflow does not answer ({error}): python -m deploy.native status") from None
        finally:
            connection.close()
        if status == 403:
            raise ServerError("only an administrator may do this")
        if status == 401:
            raise ServerError(
                "MLflow refuses the password; if it was changed elsewhere: admin_password of secrets.json"
            )
        if status >= 400:
            message, code = _message(text)
            raise (AlreadyThereError if code == "RESOURCE_ALREADY_EXISTS" else ServerError)(message)
        return json.loads(text) if text.strip() else {}

    # ----------------------------------------------------------------------------------------------------- users

    def add_user(self, name: str, password: str | None = None, admin: bool = False) -> str:
        """Make a user and return the password, which is generated where none is given."""
        password = password or secrets.token_urlsafe(18)
        try:
            self.call("POST", "users/create", username=name, password=password)
        except AlreadyThereError:
            raise ServerError(f"{name}: is a user already; set-password {name} gives another password") from None
        if admin:
            self.call("PATCH", "users/update-admin", username=name, is_admin=True)
        return password

    def set_password(self, name: str, password: str | None = None) -> str:
        password = password or secrets.token_urlsafe(18)
        self.call("PATCH", "users/update-password", username=name, password=password)
        return password

    def remove_user(self, name: str) -> None:
        self.call("DELETE", "users/delete", username=name)

    def users(self) -> list[dict[str, Any]]:
        """Each with username, is_admin and roles."""
        return list(self.call("GET", "users/list")["users"])

    # ----------------------------------------------------------------------------------------------------- teams

    def add_team(self, name: str) -> None:
        try:
            self.call("POST", "roles/create", "3.0", workspace=WORKSPACE, name=name, description="team")
        except AlreadyThereError:
            raise ServerError(f"{name}: is a team already; join {name} USER puts users into it") from None

    def remove_team(self, name: str) -> None:
        self.call("DELETE", "roles/delete", "3.0", role_id=self._team(name)["id"])

    def join(self, team: str, user: str) -> None:
        self.call("POST", "roles/assign", "3.0", username=user, role_id=self._team(team)["id"])

    def leave(self, team: str, user: str) -> None:
        self.call("DELETE", "roles/unassign", "3.0", username=user, role_id=self._team(team)["id"])

    def teams(self) -> dict[str, dict[str, Any]]:
        roles = self.call("GET", "roles/list", "3.0", workspace=WORKSPACE)["roles"]
        # A role whose name begins with underscores holds what was granted to a single user.
        return {role["name"]: role for role in roles if not role["name"].startswith("__")}

    def _team(self, name: str) -> dict[str, Any]:
        teams = self.teams()
        if name not in teams:
            raise ServerError(f"{name}: no such team; there are: {', '.join(sorted(teams)) or 'none'}")
        return teams[name]

    # ----------------------------------------------------------------------------------------------- permissions

    def grant(self, permission: str, experiment: str, *, team: str | None = None, user: str | None = None) -> None:
        """Give a team or a user a permission on an experiment, in place of the one it had; * = on all experiments."""
        pattern = "*" if experiment == "*" else self.experiment_id(experiment)
        what = {"resource_type": "experiment", "permission": permission}
        if user is not None:
            if any(name == user and pattern in patterns for name, patterns in self._own_patterns()):
                self.revoke(experiment, user=user)
            self.call("POST", "users/permissions/grant", "3.0", username=user, resource_id=pattern, **what)
            return
        assert team is not None
        role = self._team(team)
        for row in role["permissions"]:
            if (row["resource_type"], row["resource_pattern"]) == ("experiment", pattern):
                self.call("DELETE", "roles/permissions/remove", "3.0", role_permission_id=row["id"])
        self.call("POST", "roles/permissions/add", "3.0", role_id=role["id"], resource_pattern=pattern, **what)

    def revoke(self, experiment: str, *, team: str | None = None, user: str | None = None) -> None:
        pattern = "*" if experiment == "*" else self.experiment_id(experiment)
        if user is not None:
            what = {"resource_type": "experiment", "resource_id": pattern}
            self.call("POST", "users/permissions/revoke", "3.0", username=user, **what)
            return
        assert team is not None
        for row in self._team(team)["permissions"]:
            if (row["resource_type"], row["resource_pattern"]) == ("experiment", pattern):
                self.call("DELETE", "roles/permissions/remove", "3.0", role_permission_id=row["id"])

    def _own_patterns(self) -> Iterator[tuple[str, set[str]]]:
        """Of each user, the experiments on which a permission was granted to this user alone."""
        for user in self.users():
            own = [role for role in user["roles"] if role["name"].startswith("__")]
            rows = [row for role in own for row in role.get("permissions", []) if row["resource_type"] == "experiment"]
            yield user["username"], {row["resource_pattern"] for row in rows}

    def experiment_id(self, name: str) -> str:
        """The id of an experiment, made where it does not exist, so that a team can have it before its first run."""
        for experiment in self.experiments():
            if experiment["name"] == name:
                return str(experiment["experiment_id"])
        kind = {"key": "mlflow.experimentKind", "value": "custom_model_development"}  # its page opens on runs
        return str(self.call("POST", "experiments/create", name=name, tags=[kind])["experiment_id"])

    def experiments(self) -> Iterator[dict[str, Any]]:
        token = ""
        while True:
            page = self.call("POST", "experiments/search", max_results=1000, page_token=token)
            yield from page.get("experiments", [])
            token = page.get("next_page_token", "")
            if not token:
                return

    def table(self) -> list[str]:
        """A line a user, and a line a team with its members and permissions."""
        names = {str(experiment["experiment_id"]): experiment["name"] for experiment in self.experiments()} | {"*": "*"}
        users = self.users()
        lines = []
        for user in users:
            roles = {role["name"]: role for role in user["roles"]}
            own = [grant for name, role in roles.items() if name.startswith("__") for grant in _grants(role, names)]
            teams = sorted(name for name in roles if not name.startswith("__"))
            shown = [f"teams: {', '.join(teams)}"] if teams else []
            lines.append("; ".join([f"user {user['username']}{' (admin)' if user['is_admin'] else ''}", *shown, *own]))
        for name, role in sorted(self.teams().items()):
            members = sorted(user["username"] for user in users if name in {role["name"] for role in user["roles"]})
            lines.append("; ".join([f"team {name}: {', '.join(members) or 'nobody'}", *_grants(role, names)]))
        return lines


def _grants(role: dict[str, Any], names: dict[str, str]) -> list[str]:
    return [
        f"{row['permission']} on {names.get(row['resource_pattern'], row['resource_pattern'])}"
        for row in role.get("permissions", [])
        if row["resource_type"] == "experiment"
    ]


def _message(text: str) -> tuple[str, str]:
    """MLflow's message and its code; without what its database said, which holds SQL and a password's hash."""
    try:
        answer = json.loads(text)
        message, code = str(answer["message"]), str(answer.get("error_code", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        message, code = text.strip()[:500], ""
    return re.split(r"\s*(?:Error: \(|\[SQL)", message)[0], code
