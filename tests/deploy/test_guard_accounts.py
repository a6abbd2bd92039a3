"""Users, teams and permissions are the administrators' business: every route, as anybody else, in every spelling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from deploy.guard import routes
from tests.support.team_server import Asker, TeamServer

pytestmark = [pytest.mark.service, pytest.mark.slow]
TEAM, MEMBER, PASSWORD = "team-that-is-not-yours", "member-of-that-team", "a password of theirs"


class Cast:
    """A team with a member and a permission; users without a permission, with one, with DENY and with MANAGE."""

    def __init__(self, server: TeamServer) -> None:
        self.server = server
        self.admin = Asker(server, "admin", server.admin_password)
        self.stranger = Asker(server)
        server.account("add-team", TEAM)
        server.accounts.add_user(MEMBER, PASSWORD)
        server.account("join", TEAM, MEMBER)
        server.account("grant", "--team", TEAM, "EDIT", "theirs")
        self.users: dict[str, Asker] = {}
        for permission in ("no grant", "READ", "DENY", "MANAGE"):
            name = f"ordinary-{permission.lower().replace(' ', '-')}"
            self.users[name] = Asker(server, name, server.account("add-user", name).strip())
            if permission != "no grant":
                server.account("grant", "--user", name, permission, "theirs")
        self.role = server.accounts.teams()[TEAM]
        self.experiment = server.accounts.experiment_id("theirs")

    def values(self, rule: str) -> dict[str, Any]:
        """The body of this rule's request. MLflow would carry it out for an administrator."""
        role, permission = {"role_id": self.role["id"]}, self.role["permissions"][0]
        on_theirs = {"resource_type": "experiment", "resource_id": self.experiment}
        account = {"username": MEMBER}
        by_route: dict[str, dict[str, Any]] = {
            "users/create-ui": {"username": "made-by-another", "password": PASSWORD},
            "users/create": {"username": "made-by-another", "password": PASSWORD},
            "users/update-admin": {**account, "is_admin": True},
            "users/update-password": {**account, "password": "another password", "current_password": PASSWORD},
            "users/delete": account,
            "users/permissions/get": {**account, **on_theirs},
            "roles/create": {"workspace": "default", "name": "made-by-another"},
            "roles/list": {"workspace": "default"},
            "roles/update": {**role, "name": "renamed-by-another"},
            "roles/permissions/add": {
                **role, "resource_type": "experiment", "resource_pattern": "*", "permission": "MANAGE",
            },
            "roles/permissions/remove": {"role_permission_id": permission["id"]},
            "roles/permissions/update": {"role_permission_id": permission["id"], "permission": "MANAGE"},
            "roles/assign": {**role, "username": "ordinary-deny"},
            "roles/unassign": {**role, **account},
        }  # fmt: skip
        last = rule.partition("/mlflow/")[2]
        return by_route.get(last, account if last.startswith("users/") else role)


@pytest.fixture(scope="module")
def cast(team_server: TeamServer) -> Cast:
    return Cast(team_server)


def spellings(rule: str) -> Iterator[str]:
    """Ways to write a route's path: those that MLflow has, and those that might go past a comparison of texts."""
    if not rule.startswith("api/"):
        yield from (rule, f"{rule}/", f"/{rule}", f"/.{rule}", f"/mlflow{rule}", f"/%{ord(rule[1]):x}{rule[2:]}")
        return
    other = rule.replace("api/2.0", "api/3.0") if "api/2.0" in rule else rule.replace("api/3.0", "api/2.0")
    for path in (f"/{rule}", f"/ajax-{rule}", f"/{other}", f"/ajax-{other}"):
        yield from (path, f"{path}/", f"/{path}", f"{path}//", path.upper(), f"{path};x", f"{path}%20", f"{path}%00")
        yield from (path.replace("/mlflow/", "//mlflow//"), path.replace("/mlflow/", "/mlflow/./"))
        yield from (path.replace("/mlflow/", "/x/../mlflow/"), path.replace("/mlflow/", "/%2e/mlflow/"))
        yield from (path.replace("/mlflow/", "%2fmlflow%2f"), path.replace("mlflow", "%6d%6cflow"))
        yield from (f"/mlflow{path}", f"/static-files{path}", f"/static-files/..{path}", f"/health/..{path}")
        yield from (f"/health/%2e%2e{path}", quote(path, safe=""), f"http://localhost{path}")


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
ACCOUNTS = [
    (method, rule) for (method, rule), kind in routes.REQUIREMENTS.items() if kind in (routes.ADMIN, routes.SELF)
]


# A page, and of each version of the API a route that shows and one that changes; spellings go before the routes' rules.
SPELLED = ("/signup", "api/2.0/mlflow/users/get", "api/3.0/mlflow/roles/list", "api/3.0/mlflow/roles/update")


@pytest.mark.parametrize(
    ("method", "rule"),
    [pytest.param(method, rule, marks=[pytest.mark.exhaustive] * (rule not in SPELLED)) for method, rule in ACCOUNTS],
)
def test_no_spelling_opens_others_accounts(cast: Cast, method: str, rule: str) -> None:
    before = cast.server.accounts.table()
    values = cast.values(rule)
    query = f"?{urlencode(values)}"
    for target in spellings(rule):
        for who in (cast.users["ordinary-deny"], cast.stranger):
            status, text = who.as_written(method, target + query, **values)
            assert status >= 300, f"{method} {target}: {status} {text}"
            assert TEAM not in text, f"{method} {target}: {text}"
    assert cast.server.accounts.table() == before


@pytest.mark.parametrize(("method", "rule"), ACCOUNTS)
def test_no_method_and_no_permission_opens_others_accounts(cast: Cast, method: str, rule: str) -> None:
    before = cast.server.accounts.table()
    values = cast.values(rule)
    query = f"?{urlencode(values)}"
    if method == "GET" and rule != "/signup":  # so that what is refused below would have been an answer
        assert cast.admin.as_written(method, f"/{rule}{query}")[0] == 200
    denied = cast.users["ordinary-deny"]
    for other in METHODS:
        status, text = denied.as_written(other, f"/{rule.lstrip('/')}{query}", **values)
        assert status >= 300 or (other == "OPTIONS" and not text), f"{other} {rule}: {status} {text}"
    for name, who in [*cast.users.items(), ("stranger", cast.stranger)]:
        for path in {f"/{rule.lstrip('/')}", f"/ajax-{rule}"} if rule.startswith("api/") else {rule}:
            status, text = who.as_written(method, path + query, **values)
            assert status in (401, 403, 404), f"{name}: {method} {path}: {status} {text}"
            assert (status == 401) == (name == "stranger")
    assert cast.server.accounts.table() == before


@pytest.mark.parametrize("rule", [rule for method, rule in ACCOUNTS if method == "GET" and "users/" in rule])
def test_everybody_sees_the_own_account(cast: Cast, rule: str) -> None:
    kind = routes.requirement("GET", rule)
    name = "ordinary-read"
    values = {"username": name, "resource_type": "experiment", "resource_id": cast.experiment}
    status, text = cast.users[name].as_written("GET", f"/{rule}?{urlencode(values)}")
    assert status == (200 if kind == routes.SELF else 403), text
    assert TEAM not in text
    # Twice, since MLflow reads the first: nobody reads another's by naming himself as well.
    status, text = cast.users[name].as_written("GET", f"/{rule}?username={MEMBER}&{urlencode(values)}")
    assert status == 403
    status, text = cast.users[name].as_written("GET", f"/{rule}?{urlencode(values)}&username={MEMBER}")
    assert TEAM not in text


def test_a_user_changes_the_own_password(cast: Cast) -> None:
    cast.server.accounts.add_user("changer", PASSWORD)
    path, values = "/api/2.0/mlflow/users/update-password", {"username": "changer", "password": "the next password"}
    user = Asker(cast.server, "changer", PASSWORD)
    assert user.as_written("PATCH", path, **values)[0] == 400  # the current one is missing
    assert user.as_written("PATCH", path, **values, current_password=PASSWORD)[0] == 200
    assert Asker(cast.server, "changer", "the next password")("GET", "/version").status_code == 200
