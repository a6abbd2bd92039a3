"""The files of a run's folder as its artifacts: uploaded once, and listed to see whether they are there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tracking.record import files
from tracking.store.mirror import server_check
from tracking.store.mirror.state import MirrorState, signatures
from tracking.store.server import PatientClient, TrackingRefused, artifact_store


class ArtifactUploads:
    """The uploads of one folder; it remembers which files a server has refused."""

    def __init__(self, folder: Path, client: PatientClient) -> None:
        self._folder = folder
        self._client = client
        self._refused: dict[str, tuple[list[int], str]] = {}  # by file: its signature then, and the server's words

    def send(self, run_id: str, state: MirrorState, save: Callable[[], None]) -> list[str]:
        """Upload what the state lacks, and return what the server lacks after that; the state no longer has it.

        Raises TrackingRefused with the files that the server refuses, when the others are there; and at once where they
        would go to a place of ours that only a stranger names.
        """
        with self._client.request() as client:
            store = artifact_store(self._client.uri, client.get_run(run_id).info.artifact_uri)
        for name, signature in signatures(self._folder).items():
            if state.artifacts.get(name) == signature or self._refused.get(name, ([], ""))[0] == signature:
                continue
            try:
                with files.lent(self._folder / name) as path, self._client.request(signature[0]):
                    store.log_artifact(str(path))
            except TrackingRefused as error:  # it may be large: once is enough, for the others to get through
                self._refused[name] = signature, f"{name} ({signature[0]:,} bytes): {error}"
                continue
            self._refused.pop(name, None)
            state.artifacts[name] = signature
            save()
        lacks = server_check.lacking_files(self._client, store, self._uploaded(state))
        for name in lacks:
            del state.artifacts[name]
        save()
        if self._refused:
            raise TrackingRefused("; ".join(words for _, words in self._refused.values()))
        return [f"the file {name}" for name in lacks]

    def _uploaded(self, state: MirrorState) -> dict[str, list[int]]:
        """What was uploaded of the files that are there; those of a run's earlier attempts have other names since."""
        there = signatures(self._folder)
        return {name: signature for name, signature in state.artifacts.items() if name in there}
