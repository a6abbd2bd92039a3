"""python -m tests.deploy.installed_routes: what the installed MLflow serves with users: "METHOD RULE" a line."""

from __future__ import annotations

from typing import Any


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


def main() -> None:
    import mlflow.server
    from mlflow.server.auth import create_app

    app = create_app()
    flask = [(method, rule.rule) for rule in mlflow.server.app.url_map.iter_rules() for method in rule.methods or ()]
    for method, rule in sorted({*native(app.routes), *flask}):
        if method not in ("HEAD", "OPTIONS"):
            print(method, rule)


if __name__ == "__main__":
    main()
