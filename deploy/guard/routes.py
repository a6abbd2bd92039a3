"""Every route of MLflow's server: who may use it, or that it is switched off.

Unlisted routes are closed, so that a new version of MLflow opens nothing by itself. A test compares the routes of the
installed version with the tables, and fails for a new one.
"""

from __future__ import annotations

import re

# What a route requires. MLflow checks permissions, the guard checks accounts. A test requests every route as users with
# more and with fewer rights.
ANYBODY = "anybody"  # without a password
USER = "user"  # any user; MLflow shows only what the user may see
READ, EDIT, MANAGE = "READ", "EDIT", "MANAGE"  # permission on the experiment
SELF = "oneself"  # the user named in the request, or an administrator
ADMIN = "administrator"

# `/ajax-api/` (pages) and `/api/` (clients) have the same rules, and are written `api/` here.
OPEN_ROUTES = {
    ANYBODY: """
        GET  /health
        GET  /static-files/<path:path>
        GET  api/3.0/mlflow/server-info
    """,
    USER: """
        GET  /
        GET  /version
        GET  /build/<path:filename>
        POST api/2.0/mlflow/experiments/create
        GET  api/2.0/mlflow/users/current
        GET  api/2.0/mlflow/users/list
        GET  api/3.0/mlflow/users/current/permissions
        GET  api/3.0/mlflow/ui-telemetry
        POST api/3.0/mlflow/ui-telemetry
    """,
    READ: """
        GET  api/2.0/mlflow/experiments/get
        GET  api/2.0/mlflow/experiments/get-by-name
        GET  api/2.0/mlflow/experiments/search
        POST api/2.0/mlflow/experiments/search
        POST api/2.0/mlflow/experiments/search-datasets
        GET  api/2.0/mlflow/runs/get
        POST api/2.0/mlflow/runs/search
        GET  api/2.0/mlflow/metrics/get-history
        GET  api/2.0/mlflow/metrics/get-history-bulk
        GET  api/2.0/mlflow/metrics/get-history-bulk-interval
        GET  api/2.0/mlflow/artifacts/list
        GET  /get-artifact
        GET  api/2.0/mlflow-artifacts/artifacts
        GET  api/2.0/mlflow-artifacts/artifacts/<path:artifact_path>
        GET  api/2.0/mlflow-artifacts/presigned/<path:artifact_path>
        POST api/2.0/mlflow/logged-models/search
        POST api/3.0/mlflow/traces/search
        GET  api/2.0/mlflow/registered-models/search
        GET  api/2.0/mlflow/model-versions/search
        POST /graphql
    """,
    EDIT: """
        POST api/2.0/mlflow/experiments/update
        POST api/2.0/mlflow/experiments/set-experiment-tag
        POST api/2.0/mlflow/experiments/delete-experiment-tag
        POST api/2.0/mlflow/runs/create
        POST api/2.0/mlflow/runs/update
        POST api/2.0/mlflow/runs/log-metric
        POST api/2.0/mlflow/runs/log-parameter
        POST api/2.0/mlflow/runs/log-batch
        POST api/2.0/mlflow/runs/log-inputs
        POST api/2.0/mlflow/runs/set-tag
        POST api/2.0/mlflow/runs/delete-tag
        PUT  api/2.0/mlflow-artifacts/artifacts/<path:artifact_path>
        POST api/2.0/mlflow-artifacts/mpu/create/<path:artifact_path>
        POST api/2.0/mlflow-artifacts/mpu/complete/<path:artifact_path>
        POST api/2.0/mlflow-artifacts/mpu/abort/<path:artifact_path>
    """,
    MANAGE: """
        POST   api/2.0/mlflow/experiments/delete
        POST   api/2.0/mlflow/experiments/restore
        POST   api/2.0/mlflow/runs/delete
        POST   api/2.0/mlflow/runs/restore
        DELETE api/2.0/mlflow-artifacts/artifacts/<path:artifact_path>
        POST   api/3.0/mlflow/users/permissions/grant
        POST   api/3.0/mlflow/users/permissions/revoke
    """,
    SELF: """
        GET   api/2.0/mlflow/users/get
        PATCH  api/2.0/mlflow/users/update-password
        GET   api/3.0/mlflow/users/permissions/list
        GET   api/3.0/mlflow/users/permissions/get
        GET   api/3.0/mlflow/users/roles/list
    """,
    ADMIN: """
        GET    /signup
        POST   api/2.0/mlflow/users/create-ui
        POST   api/2.0/mlflow/users/create
        PATCH  api/2.0/mlflow/users/update-admin
        DELETE api/2.0/mlflow/users/delete
        POST   api/3.0/mlflow/roles/create
        GET    api/3.0/mlflow/roles/get
        GET    api/3.0/mlflow/roles/list
        PATCH  api/3.0/mlflow/roles/update
        DELETE api/3.0/mlflow/roles/delete
        POST   api/3.0/mlflow/roles/permissions/add
        DELETE api/3.0/mlflow/roles/permissions/remove
        GET    api/3.0/mlflow/roles/permissions/list
        PATCH  api/3.0/mlflow/roles/permissions/update
        POST   api/3.0/mlflow/roles/assign
        DELETE api/3.0/mlflow/roles/unassign
        GET    api/3.0/mlflow/roles/users/list
    """,
}

# Switched off for everybody. Each could make the server read or write a chosen place, call an address, store a user's
# secret, or run something; or it belongs to MLflow's features for models and language models, which runs do not need
# and whose permissions are not tested here. An entry closes all routes with this prefix.
CLOSED_PREFIXES = (
    "api/2.0/mlflow/registered-models/",
    "api/2.0/mlflow/model-versions/",
    "/model-versions/get-artifact",
    "api/2.0/mlflow/logged-models",
    "api/2.0/mlflow/runs/log-model",
    "api/2.0/mlflow/runs/outputs",
    "api/2.0/mlflow/runs/create-promptlab-run",
    "api/2.0/mlflow/upload-artifact",
    "api/2.0/mlflow/artifacts/presigned-",
    "api/2.0/mlflow/traces",
    "api/3.0/mlflow/traces",
    "api/2.0/mlflow/get-trace-artifact",
    "api/3.0/mlflow/get-trace-artifact",
    "api/2.0/mlflow/unified-traces",
    "api/2.0/mlflow/get-online-trace-details",
    "/graphql",
    "/v1/traces",
    "api/2.0/mlflow/webhooks",
    "api/2.0/mlflow/gateway-proxy",
    "api/3.0/mlflow/gateway/",
    "/gateway/",
    "api/3.0/mlflow/workspaces",
    "api/3.0/mlflow/issues",
    "api/3.0/mlflow/label-schemas/",
    "api/3.0/mlflow/datasets/",
    "api/3.0/mlflow/scorer/",
    "api/3.0/mlflow/scorers/",
    "api/3.0/mlflow/prompt-optimization/",
    "api/3.0/mlflow/review-queues/",
    "api/3.0/mlflow/genai/",
    "api/3.0/mlflow/demo/",
    "api/3.0/mlflow/jobs/",
    "api/3.0/jobs",
    "api/3.0/mlflow/assistant",
    "api/3.0/mlflow/mcp-servers",
    "api/2.0mlflow/",
)


def _table() -> dict[tuple[str, str], str]:
    lines = (
        (required, *line.split()) for required, text in OPEN_ROUTES.items() for line in text.split("\n") if line.strip()
    )
    return {(method, rule): required for required, method, rule in lines}


REQUIREMENTS = _table()


def normalized(rule: str) -> str:
    """An MLflow rule in the form of these tables; FastAPI's `{name:path}` becomes Flask's `<path:name>`."""
    rule = re.sub(r"\{(\w+):path\}", r"<path:\1>", rule)
    return re.sub(r"^/(ajax-)?api/", "api/", rule)


def requirement(method: str, rule: str) -> str | None:
    """The requirement of a route; None if it is closed. HEAD counts as GET."""
    return REQUIREMENTS.get(("GET" if method == "HEAD" else method, normalized(rule)))


def is_closed(rule: str) -> bool:
    """Whether a route is in CLOSED, rather than unlisted."""
    return normalized(rule).startswith(tuple(CLOSED_PREFIXES))
