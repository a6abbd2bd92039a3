"""Stores that only a run's folder names, which may be a stranger's: what is refused of them."""

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


def check_named(uri: str) -> None:
    """Raise TrackingRefused for a store that only a run's folder names, unless it is one that nothing is given to.

    Databases' clients take passwords from the environment and from files, and plugins do what they like.
    """
    if urlsplit(uri).scheme.split("+")[0] not in ("http", "https", "sqlite") and not recipients.is_named(uri):
        raise TrackingRefused(_not_named(uri, "to reach it may take your credentials"))


def artifact_store(uri: str, location: str) -> ArtifactRepository:
    """Where a store has a run's or a model's artifacts. Raises TrackingRefused as `check_location` does.

    It is what is to be written to: MLflow's own functions ask for the location again, and a stranger's server may
    answer the second time with a place of ours.
    """
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    check_location(uri, location)
    return get_artifact_repository(location, tracking_uri=uri)


def check_location(uri: str, location: str) -> None:
    """Raise TrackingRefused where a store that only a run's folder names has its artifacts written to a place of ours.

    `location` is what the store says of a run. Artifacts go through the server, or beside the database.
    """
    if recipients.is_named(uri):
        return
    parts = urlsplit(location)
    root = artifact_root(uri)
    below = root is not None and parts.scheme in ("", "file") and _is_below(unquote(parts.path), urlsplit(root).path)
    if parts.scheme not in ("http", "https", "mlflow-artifacts") and not below:
        raise TrackingRefused(_not_named(uri, f"it has artifacts written to {redact(location)}"))


def _not_named(uri: str, why: str) -> str:
    shown = strip_credentials(uri)
    return (
        f"{shown}: you have not named this store, only the run's folder does, and {why}. If it is yours, set"
        f" MLFLOW_TRACKING_URI={shown}, or give {TRACKING} sync --to {shown} FOLDER"
    )


def _is_below(path: str, root: str) -> bool:
    folder = Path(unquote(root))
    return Path(path).resolve().is_relative_to(folder.parent.resolve() / folder.name)  # The path itself may be no link.
