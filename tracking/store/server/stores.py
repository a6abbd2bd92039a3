"""Refusals for stores that only a run's folder names, since a folder may come from a stranger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tracking.base.installation import TRACKING
from tracking.base.secrets import redact, strip_credentials
from tracking.store.server import recipients
from tracking.store.server.server_errors import TrackingRefused
from tracking.store.server.uris import artifact_root

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository


def check_named_by_user(uri: str) -> None:
    """Raise TrackingRefused for a store that only a run's folder names, unless its client sends no credentials.

    Clients of databases read passwords from the environment and from files, and plugins may do anything.
    """
    if urlsplit(uri).scheme.split("+")[0] not in ("http", "https", "sqlite") and not recipients.is_named_by_user(uri):
        raise TrackingRefused(_refusal(uri, "reaching it may send your credentials"))


def artifact_store(uri: str, location: str) -> ArtifactRepository:
    """The repository of a run's or a model's artifacts. Raises TrackingRefused as `check_location` does.

    Write to this repository. MLflow's own functions would ask for the location again, and a stranger's server may
    answer with one of the user's places the second time.
    """
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    check_location(uri, location)
    return get_artifact_repository(location, tracking_uri=uri)


def check_location(uri: str, location: str) -> None:
    """Raise TrackingRefused if a store that only a run's folder names wants artifacts written elsewhere.

    `location` is the store's answer for a run. Artifacts may go through the server, or beside the database.
    """
    if recipients.is_named_by_user(uri):
        return
    parts = urlsplit(location)
    root = artifact_root(uri)
    below = root is not None and parts.scheme in ("", "file") and _is_below(unquote(parts.path), urlsplit(root).path)
    if parts.scheme not in ("http", "https", "mlflow-artifacts") and not below:
        raise TrackingRefused(_refusal(uri, f"it wants artifacts written to {redact(location)}"))


def _refusal(uri: str, why: str) -> str:
    plain_uri = strip_credentials(uri)
    return (
        f"{plain_uri}: you have not named this store, only the run's folder has, and {why}. Next: if it is yours, set"
        f" MLFLOW_TRACKING_URI={plain_uri}, or give {TRACKING} sync --to {plain_uri} FOLDER"
    )


def _is_below(path: str, root: str) -> bool:
    folder = Path(unquote(root))
    return Path(path).resolve().is_relative_to(folder.parent.resolve() / folder.name)  # a link as root fails
