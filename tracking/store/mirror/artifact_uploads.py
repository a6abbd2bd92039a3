"""Upload the files of a run's folder as artifacts, each once, and list them to check that they arrived."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracking.record import files
from tracking.store.mirror import server_check
from tracking.store.mirror.state import MirrorState, signatures
from tracking.store.server import PatientClient, TrackingRefused, artifact_store


class ArtifactUploads:
    """The uploads of one folder. Remembers the files that the server refused."""

    def __init__(self, folder: Path, client: PatientClient) -> None:
        self._folder = folder
        self._client = client
        self._refused: dict[str, tuple[list[int], str]] = {}  # by file: its signature then, and the server's message

    def send(self, run_id: str, state: MirrorState, save: Callable[[], None]) -> list[str]:
        """Upload files that the state lacks. Return those the server still misses, and drop them from the state.

        Raises TrackingRefused: with the refused files, after uploading the others; at once for a location that only a
        run's folder names.
        """
        uri = self._client.uri
        store = self._client.ask(lambda client: artifact_store(uri, client.get_run(run_id).info.artifact_uri))
        for name, signature in signatures(self._folder).items():
            if state.artifacts.get(name) == signature or self._refused.get(name, ([], ""))[0] == signature:
                continue
            try:
                with files.pinned(self._folder / name) as path:
                    self._upload(store, path, signature[0])
            except TrackingRefused as error:  # not sent again, so that a large file does not block the others
                self._refused[name] = signature, f"{name} ({signature[0]:,} bytes): {error}"
                continue
            self._refused.pop(name, None)
            state.artifacts[name] = signature
            save()
        missing = server_check.missing_files(self._client, store, self._uploaded(state))
        for name in missing:
            del state.artifacts[name]
        save()
        if self._refused:
            raise TrackingRefused("; ".join(words for _, words in self._refused.values()))
        return [f"the file {name}" for name in missing]

    def _upload(self, store: Any, path: Path, num_bytes: int) -> None:
        self._client.ask(lambda _: store.log_artifact(str(path)), num_bytes)

    def _uploaded(self, state: MirrorState) -> dict[str, list[int]]:
        """The uploaded files that still exist; files of earlier attempts were renamed since."""
        existing = signatures(self._folder)
        return {name: signature for name, signature in state.artifacts.items() if name in existing}
