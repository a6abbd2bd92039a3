"""python -m tests.deploy.installed_routes: what the installed MLflow serves with users, and its words on new routes.

Prints JSON: `routes`, a method and a rule each, and `answers`, the status for each route that nobody knows.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

NEW = "/api/9.0/mlflow/"


def native(routes: list[Any], prefix: str = "") -> list[tuple[str, str]]:
    """Those of FastAPI's, which go past Flask."""
    pairs = []
    for route in routes:
        if hasattr(route, "original_router"):
            pairs += native(route.original_router.routes, prefix + route.include_context.prefix)
        elif getattr(route, "methods", None):
            pairs += [(method, prefix + route.path) for method in route.methods]
        elif getattr(route, "path", "") != "":  # the mounted Flask app has an empty one
            raise AssertionError(f"{route}: of an unknown kind")
    return pairs


async def status(app: Any, path: str, headers: list[tuple[bytes, bytes]]) -> int:
    """The status of the answer to a GET request, which the application gets as from a server."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "client": ("127.0.0.1", 1),
        "server": ("localhost", 5000), "headers": [(b"host", b"localhost:5000"), *headers],
    }  # fmt: skip
    await app(scope, receive, send)
    return int(sent[0]["status"])


async def answers(app: Any) -> list[str]:
    """Route and status: each new route for a stranger and the administrator, and a known one for the latter."""
    password = [(b"authorization", b"Basic " + base64.b64encode(b"admin:only to list routes"))]
    asked = [(name, f"{NEW}{name}", headers) for name in ("flask", "fastapi") for headers in ([], password)]
    asked.append(("known", "/version", password))
    return [f"{name} {await status(app, path, headers)}" for name, path, headers in asked]


def main() -> None:
    import mlflow.server
    from mlflow.server.artifact_router import artifact_router
    from mlflow.server.auth import create_app

    mlflow.server.app.add_url_rule(f"{NEW}flask", endpoint="new", view_func=lambda: "shown", methods=["GET"])
    artifact_router.add_api_route(f"{NEW}fastapi", lambda: "shown", methods=["GET"])
    app = create_app()
    flask = [(method, rule.rule) for rule in mlflow.server.app.url_map.iter_rules() for method in rule.methods or ()]
    served = sorted({*native(app.routes), *flask})
    routes = [pair for pair in served if pair[0] not in ("HEAD", "OPTIONS") and not pair[1].startswith(NEW)]
    print(json.dumps({"routes": routes, "answers": asyncio.run(answers(app))}))


if __name__ == "__main__":
    main()
